import type {Command} from 'commander'
import {newError} from '../errors.ts'
import {expectOneOf} from '../nearest.ts'
import type {CliCommand} from './command.ts'

/** A command by the words that lead to it, `period/close`, with the words that can follow. */
interface Place {
  path: string
  commands: readonly {name: string; about: string}[]
  options: readonly {name: string; about: string}[]
}

const SHELLS: Readonly<Record<string, (places: readonly Place[]) => string>> = {
  bash: renderBash,
  zsh: (places) => `(( $+functions[compdef] )) || { autoload -U +X compinit && compinit }
autoload -U +X bashcompinit && bashcompinit
${renderBash(places)}`,
  fish: renderFish,
}

/** `loantape completion`. */
export default function addCompletion(command: CliCommand): void {
  command
    .description(
      'print what makes a shell complete commands and options; for bash, `source <(loantape completion bash)`',
    )
    .example('completion bash')
    .argument('<shell>', Object.keys(SHELLS).join(', '))
    .examines()
    .does(
      async ({cli}, shell: string) => {
        const render = Object.hasOwn(SHELLS, shell) ? SHELLS[shell] : undefined
        if (!render) throw newError('USAGE', `Shell '${shell}': ${expectOneOf(shell, Object.keys(SHELLS))}.`)
        // Loaded here: it loads this file.
        const {createProgram} = await import('./program.ts')
        return {script: render(listPlaces(await createProgram(cli)))}
      },
      ({script}) => script,
    )
}

function listPlaces(command: Command, path = ''): Place[] {
  const help = command.createHelp()
  const commands = command.commands.map((one) => ({name: one.name(), about: help.subcommandDescription(one)}))
  const options = [...help.visibleOptions(command), ...help.visibleGlobalOptions(command)].flatMap(
    (option) => (option.long ? {name: option.long, about: option.description} : []),
  )
  const below = command.commands.flatMap((one) => listPlaces(one, `${path}/${one.name()}`))
  return [{path, commands, options}, ...below]
}

/** Where the words before the one under the cursor lead; what is no command is an argument. */
function renderBash(places: readonly Place[]): string {
  const cases = places.map(({path, commands, options}) => {
    const words = [...commands, ...options].map(({name}) => name).join(' ')
    return `    '${path}') words='${words}' ;;`
  })
  return `_loantape() {
  local at= words= word
  for word in "\${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}"; do
    case "$at/$word" in
      ${places.flatMap(({path}) => path || []).join('|')}) at="$at/$word" ;;
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

function renderFish(places: readonly Place[]): string {
  const quoted = (text: string) => `'${text.replace(/['\\]/g, '\\$&')}'`
  const lines = places.flatMap(({path, commands, options}) => {
    const here = `complete -c loantape -n "test (__loantape_at) = ${quoted(path || '/')}"`
    return [
      ...commands.map(({name, about}) => `${here} -f -a ${name} -d ${quoted(about)}`),
      ...options.map(({name, about}) => `${here} -l ${name.replace(/^--/, '')} -d ${quoted(about)}`),
    ]
  })
  const paths = places.flatMap(({path}) => (path ? quoted(path) : []))
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
