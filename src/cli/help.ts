import type {Command} from 'commander'
import {maskConfig} from '../core/config.ts'
import {CATALOGUE, EXIT_CODES, exitCodeOf, newError} from '../core/errors.ts'
import {findNearest} from '../core/text.ts'
import {does, refuseValue} from './command.ts'
import {tableOf} from './table.ts'

export const commands = {
  explain: does(
    (_call, asked?: string) => (asked === undefined ? {codes: listAll()} : explain(asked)),
    (found) => ('codes' in found ? renderAll(found.codes) : renderOne(found)),
  ),
  config: does(async ({cli, options, config}) => {
    const {listSettings} = await import('./read-config.ts')
    const {env, layers} = listSettings(cli, options)
    cli.printResult(options, maskConfig(config), (settings) =>
      tableOf(
        Object.entries(settings).map(([setting, value]) => {
          const given = [setting, `${setting}_FILE`, `${setting}_COMMAND`].find((name) => env[name])
          const [from = ''] = layers.findLast(([, layer]) => given && layer[given] !== undefined) ?? []
          const by = given === undefined ? 'default' : given === setting ? from : `${given} in ${from}`
          return {setting, value: String(value), from: by}
        }),
      ),
    )
  }),
  completion: does(
    ({command}, shell: string, typed: string[]) => {
      const script = SCRIPTS[shell]
      if (script === undefined) throw refuseValue(shell, '<shell>', Object.keys(SCRIPTS).join(', '))
      return typed.length === 0 ? {script} : {words: listWords(command.parent ?? command, typed)}
    },
    (found) =>
      'script' in found ? found.script : found.words.map(({name, about}) => `${name} ${about}`).join('\n'),
  ),
}

type Explained = ReturnType<typeof listAll>[number]

function listAll() {
  const sorted = Object.entries(CATALOGUE).toSorted(([one], [other]) => (one < other ? -1 : 1))
  return sorted.map(([code, {kind, kept, next}]) => {
    if (kind === 'ended') return {code, exit_code: null, meaning: 'the server saw a run end', kept, next}
    const exit_code = exitCodeOf(kind)
    return {code, exit_code, meaning: EXIT_CODES[exit_code] ?? '', kept, next}
  })
}

/** @throws ConfigError `UNKNOWN_NAME` naming codes that contain the word or are similar to it */
function explain(asked: string): Explained {
  const word = asked.toUpperCase().replace(/\W/g, '')
  const all = listAll()
  const found = all.find(({code}) => code === word)
  if (found) return found
  const codes = all.map(({code}) => code)
  const parts = [word, findNearest(word, codes), findNearest(word, [...new Set(codes.join('_').split('_'))])]
  const nearest =
    parts
      .map((part) => codes.filter((code) => part !== undefined && code.includes(part)))
      .find(({length}) => length > 0) ?? []
  throw newError(
    'UNKNOWN_NAME',
    `Code '${asked}': expected ${nearest.length > 0 ? `a code such as ${nearest.slice(0, 5).join(', ')}` : 'a known code'}.`,
    {next: '`loantape explain` lists all codes.'},
  )
}

function renderOne({code, exit_code, meaning, kept, next}: Explained): string {
  return [
    `${code}: ${describeExit({exit_code, meaning})}.`,
    `Kept: ${kept ?? 'the message says what.'}`,
    `Next: ${next ?? 'the message says what to do.'}`,
  ].join('\n')
}

const describeExit = ({exit_code, meaning}: Pick<Explained, 'exit_code' | 'meaning'>) =>
  `${exit_code === null ? 'no exit code' : `exit ${exit_code}`}, ${meaning}`

function renderAll(all: readonly Explained[]): string {
  const kinds = [...Map.groupBy(all, (one) => `${describeExit(one)}:`)].toSorted()
  const inLines = (codes: string) => codes.replaceAll(/(.{1,76})(?: |$)/g, '  $1\n')
  return [
    ...kinds.map(([kind, found]) => `${kind}\n${inLines(found.map(({code}) => code).join(' '))}`),
    '`loantape explain CODE` says what is kept then, and what to do.',
  ].join('\n')
}

const BASH = `_loantape() {
  local words; words=$("\${1/#\\~/$HOME}" completion bash -- "\${COMP_WORDS[@]:0:$COMP_CWORD}" 2>/dev/null | cut -d ' ' -f 1)
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _loantape loantape
`

/** The scripts that shells run once; with every Tab they then ask which words can follow. */
const SCRIPTS: Record<string, string> = {
  bash: BASH,
  zsh: `(( $+functions[compdef] )) || { autoload -U +X compinit && compinit }
autoload -U +X bashcompinit && bashcompinit
${BASH}`,
  fish: `complete -c loantape -n __fish_use_subcommand -f
complete -c loantape -a '(loantape completion fish -- (commandline -opc) | string replace " " \\t)'
`,
}

/** `typed` is the line so far; its first word is the program. */
function listWords(program: Command, typed: readonly string[]): {name: string; about: string}[] {
  const find = (above: Command, word: string) => above.commands.find((one) => one.name() === word) ?? above
  const command = typed.slice(1).reduce(find, program)
  const help = command.createHelp()
  const options = [...help.visibleOptions(command), ...help.visibleGlobalOptions(command)]
  return [
    ...command.commands.map((one) => ({name: one.name(), about: help.subcommandDescription(one)})),
    ...options.flatMap(({long, description: about}) => (long ? {name: long, about} : [])),
  ]
}
