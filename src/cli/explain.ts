import type {Command} from 'commander'
import {CATALOGUE, EXIT_CODES, exitCodeOf, newError} from '../errors.ts'
import type {Cli, CommonOptions} from './context.ts'

/** `loantape explain`. */
export function addExplain(program: Command, cli: Cli): void {
  program
    .command('explain')
    .description('what an error means by its code: what is kept, what to do')
    .argument('<code>', 'as it stands in brackets behind a message')
    .action((asked: string, _options, command: Command) => {
      const found = Object.entries(CATALOGUE).find(([code]) => code === asked.toUpperCase())
      if (!found) throw newError('EXPLAIN_CODE', `Code '${asked}': expected ${suggest(asked)}.`)
      const [code, {kind, kept, next}] = found
      const exit_code = exitCodeOf(kind)
      const page = {code, exit_code, meaning: EXIT_CODES[exit_code] ?? '', kept, next}
      cli.printResult(command.optsWithGlobals<CommonOptions>(), page, renderPage)
    })
}

/** The codes that share the longest beginning with what was asked. */
function suggest(asked: string): string {
  for (let length = asked.length; length > 0; length -= 1) {
    const alike = Object.keys(CATALOGUE).filter((code) =>
      code.startsWith(asked.slice(0, length).toUpperCase()),
    )
    if (alike.length > 0) return `${alike.slice(0, 5).join(', ')}${alike.length > 5 ? ', …' : ''}`
  }
  return 'one of docs/errors.md'
}

function renderPage({
  code,
  exit_code,
  meaning,
  kept,
  next,
}: {
  code: string
  exit_code: number
  meaning: string
  kept?: string | undefined
  next?: string | undefined
}): string {
  return [
    `${code}: exit ${exit_code}, ${meaning}.`,
    `Kept: ${kept ?? 'the message says what.'}`,
    `Next: ${next ?? 'the message says what to do.'}`,
  ].join('\n')
}
