import type {Command} from 'commander'
import {maskConfig} from '../core/config.ts'
import {CATALOGUE, EXIT_CODES, exitCodeOf, newError} from '../core/errors.ts'
import {findNearest} from '../core/text.ts'
import {does} from './command.ts'
import {renderTable} from './table.ts'

export const commands = {
  explain: does(
    (_call, asked?: string) => (asked === undefined ? {codes: listAll()} : explain(asked)),
    (found) => ('codes' in found ? renderAll(found.codes) : renderOne(found)),
  ),
  config: does(
    ({config}) => maskConfig(config),
    (settings) =>
      renderTable(
        Object.entries(settings).map(([setting, value]) => ({
          setting,
          value: String(value ?? '(not set)'),
        })),
      ),
  ),
  completion: does(
    ({command}, shell: string) => {
      const completions = listCompletions(command.parent ?? command)
      if (shell === 'fish') return {script: renderFish(completions)}
      return {script: `${shell === 'zsh' ? IN_ZSH : ''}${renderBash(completions)}`}
    },
    ({script}) => script,
  ),
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
    `Code '${asked}': expected ${nearest.length > 0 ? `a code such as ${nearest.slice(0, 5).join(', ')}` : 'a known code'}.`,
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
  const kinds = [...Map.groupBy(all, ({exit_code: exit, meaning}) => `exit ${exit}, ${meaning}:`)].toSorted()
  const inLines = (codes: string) => codes.replaceAll(/(.{1,76})(?: |$)/g, '  $1\n')
  return [
    ...kinds.map(([kind, found]) => `${kind}\n${inLines(found.map(({code}) => code).join(' '))}`),
    '`loantape explain CODE` says what is kept then, and what to do.',
  ].join('\n')
}

/** A command, named by the words that lead to it, `/period/close`, and the words that can follow. */
interface Completion {
  path: string
  words: readonly {name: string; about: string}[]
}

const IN_ZSH = `(( $+functions[compdef] )) || { autoload -U +X compinit && compinit }
autoload -U +X bashcompinit && bashcompinit
`

function listCompletions(command: Command, path = ''): Completion[] {
  const help = command.createHelp()
  const commands = command.commands.map((one) => ({name: one.name(), about: help.subcommandDescription(one)}))
  const options = [...help.visibleOptions(command), ...help.visibleGlobalOptions(command)].flatMap(
    ({long, description}) => (long ? {name: long, about: description} : []),
  )
  const below = command.commands.flatMap((one) => listCompletions(one, `${path}/${one.name()}`))
  return [{path, words: [...commands, ...options]}, ...below]
}

function renderBash(completions: readonly Completion[]): string {
  const cases = completions.map(
    ({path, words}) => `    '${path}') words='${words.map(({name}) => name).join(' ')}' ;;`,
  )
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
  const lines = completions.flatMap(({path, words}) => {
    const here = `complete -c loantape -n "test (__loantape_at) = ${quoted(path || '/')}"`
    return words.map(({name, about}) => {
      const word = name.startsWith('--') ? `-l ${name.slice(2)}` : `-f -a ${name}`
      return `${here} ${word} -d ${quoted(about)}`
    })
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
