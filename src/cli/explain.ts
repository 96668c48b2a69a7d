import {CATALOGUE, EXIT_CODES, exitCodeOf, newError} from '../errors.ts'
import {findNearest} from '../nearest.ts'
import type {CliCommand} from './command.ts'

/** `loantape explain`. */
export default function addExplain(command: CliCommand): void {
  command
    .description('what an error means by its code: what is kept, what to do')
    .example('explain GUARD_SHRINK')
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
  if (!found) throw newError('EXPLAIN_CODE', `Code '${asked}': ${suggest(asked.toUpperCase())}.`)
  const [code, {kind, kept, next}] = found
  const exit_code = exitCodeOf(kind)
  return {code, exit_code, meaning: EXIT_CODES[exit_code] ?? '', kept, next}
}

/** The codes that begin as what was asked, or the nearest. */
function suggest(asked: string): string {
  const codes = Object.keys(CATALOGUE)
  const alike = codes.filter((code) => code.startsWith(asked))
  if (alike.length > 0) return `expected ${alike.join(', ')}`
  const nearest = findNearest(asked, codes)
  return nearest === undefined ? 'expected one of docs/errors.md' : `the nearest is ${nearest}`
}
