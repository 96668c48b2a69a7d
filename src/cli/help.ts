import type {Command} from 'commander'
import {maskConfig} from '../core/config.ts'
import {CATALOGUE, EXIT_CODES, exitCodeOf, newError} from '../core/errors.ts'
import {expectOneOf, findNearest} from '../core/text.ts'
import type {CliCommand} from './command.ts'
import {renderTable} from './table.ts'

export const commands = {explain: addExplain, completion: addCompletion, config: addConfig}

function addExplain(command: CliCommand): void {
  command
    .description('what an error means by its code: what is kept, what to do; all codes if none is given')
    .example('explain GUARD_SHRINK')
    .argument('[code]', 'the code in brackets after a message, or a part of it')
    .examines()
    .does(
      (_call, asked?: string) => (asked === undefined ? listAll() : explain(asked)),
      (found) => (Array.isArray(found) ? renderAll(found) : renderOne(found)),
    )
}

type Explained = ReturnType<typeof listAll>[number]

function listAll() {
  return Object.entries(CATALOGUE).map(([code, {kind, kept, next}]) => {
    const exit_code = exitCodeOf(kind)
    return {code, exit_code, meaning: EXIT_CODES[exit_code] ?? '', kept, next}
  })
}

/** @throws ConfigError `UNKNOWN_NAME` listing the codes that contain the word, or the nearest code */
function explain(asked: string): Explained {
  const word = asked.toUpperCase().replace(/^\[|\]$/g, '')
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
    `Code '${asked}': expected ${nearest.length > 0 ? nearest.join(', ') : 'a known code'}.`,
    {next: '`loantape explain` lists all codes.'},
  )
}

function renderOne({code, exit_code, meaning, kept, next}: Explained): string {
  return [
    `${code}: exit ${exit_code}, ${meaning}.`,
    `Kept: ${kept ?? 'the message says what.'}`,
    `Next: ${next ?? 'the message says what to do.'}`,
  ].join('\n')
}

function renderAll(all: readonly Explained[]): string {
  const byExit = [...Map.groupBy(all, ({exit_code}) => exit_code)].sort(([a], [b]) => a - b)
  return byExit
    .map(([exit, those]) =>
      [`Exit ${exit}, ${EXIT_CODES[exit]}:`, ...those.map(({code}) => `  ${code}`)].join('\n'),
    )
    .join('\n\n')
}

function addConfig(command: CliCommand): void {
  command
    .example('config')
    .examines()
    .does(
      ({config}) => maskConfig(config),
      (settings) =>
        renderTable(
          ['setting', 'value'],
          Object.entries(settings).map(([name, value]) => [
            name,
            value === null ? '(not set)' : String(value),
          ]),
        ),
    )
}

/** A command, named by the words that lead to it, `/period/close`, and the words that can follow. */
interface Completion {
  path: string
  commands: readonly {name: string; about: string}[]
  options: readonly {name: string; about: string}[]
}

const SHELLS: Readonly<Record<string, (completions: readonly Completion[]) => string>> = {
  bash: renderBash,
  zsh: (completions) => `(( $+functions[compdef] )) || { autoload -U +X compinit && compinit }
autoload -U +X bashcompinit && bashcompinit
${renderBash(completions)}`,
  fish: renderFish,
}

function addCompletion(command: CliCommand): void {
  command
    .description(
      'print a script that makes a shell complete commands and options; for bash, `source <(loantape completion bash)`',
    )
    .example('completion bash')
    .argument('<shell>', Object.keys(SHELLS).join(', '))
    .examines()
    .does(
      (_invocation, shell: string) => {
        const render = Object.hasOwn(SHELLS, shell) ? SHELLS[shell] : undefined
        if (!render) throw newError('USAGE', `Shell '${shell}': ${expectOneOf(shell, Object.keys(SHELLS))}.`)
        return {script: render(listCompletions(command.parent ?? command))}
      },
      ({script}) => script,
    )
}

function listCompletions(command: Command, path = ''): Completion[] {
  const help = command.createHelp()
  const commands = command.commands.map((one) => ({name: one.name(), about: help.subcommandDescription(one)}))
  const options = [...help.visibleOptions(command), ...help.visibleGlobalOptions(command)].flatMap(
    (option) => (option.long ? {name: option.long, about: option.description} : []),
  )
  const below = command.commands.flatMap((one) => listCompletions(one, `${path}/${one.name()}`))
  return [{path, commands, options}, ...below]
}

function renderBash(completions: readonly Completion[]): string {
  const cases = completions.map(({path, commands, options}) => {
    const words = [...commands, ...options].map(({name}) => name).join(' ')
    return `    '${path}') words='${words}' ;;`
  })
  return `_loantape() {
  local at= words= word
  for word in "\${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}"; do
    case "$at/$word" in
      ${completions.flatMap(({path}) => path || []).join('|')}) at="$at/$word" ;;
    esac
  done
  case "$at" in
${cases.join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _loantape loantape
`
}

function renderFish(completions: readonly Completion[]): string {
  const quoted = (text: string) => `'${text.replace(/['\\]/g, '\\$&')}'`
  const lines = completions.flatMap(({path, commands, options}) => {
    const here = `complete -c loantape -n "test (__loantape_at) = ${quoted(path || '/')}"`
    return [
      ...commands.map(({name, about}) => `${here} -f -a ${name} -d ${quoted(about)}`),
      ...options.map(({name, about}) => `${here} -l ${name.replace(/^--/, '')} -d ${quoted(about)}`),
    ]
  })
  const paths = completions.flatMap(({path}) => (path ? quoted(path) : []))
  return `function __loantape_at
  set -l at ''
  for word in (commandline -opc)[2..]
    contains -- "$at/$word" ${paths.join(' ')}; and set at "$at/$word"
  end
  test -n "$at"; and echo $at; or echo /
end
${lines.join('\n')}
`
}
