import {CATALOGUE, EXIT_CODES, exitCodeOf, newError} from '../errors.ts'
import type {CliCommand} from './command.ts'

/** `loantape explain`. */
export function addExplain(program: CliCommand): void {
  program
    .command('explain')
    .description('what an error means by its code: what is kept, what to do')
    .argument('<code>', 'as it stands in brackets behind a message')
    .does(
      (_call, asked: string) => explain(asked),
      ({code, exit_code, meaning, kept, next}) =>
        [
          `${code}: exit ${exit_code}, ${meaning}.`,
          `Kept: ${kept ?? 'the message says what.'}`,
          `Next: ${next ?? 'the message says what to do.'}`,
        ].join('\n'),
    )
}

function explain(asked: string) {
  const found = Object.entries(CATALOGUE).find(([code]) => code === asked.toUpperCase())
  if (!found) throw newError('EXPLAIN_CODE', `Code '${asked}': expected ${suggest(asked)}.`)
  const [code, {kind, kept, next}] = found
  const exit_code = exitCodeOf(kind)
  return {code, exit_code, meaning: EXIT_CODES[exit_code] ?? '', kept, next}
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
