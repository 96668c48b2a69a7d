import {CheckError, messageOf} from '../errors.ts'

const KEPT = 'Nothing was released; current still points to the release before.'

/** A place in a file that a person can open. */
export interface Place {
  file: string
  line: number
}

/** The error of a model or seed file, naming file and line; always a `CheckError`, exit 3. */
export function createModelError(
  code: string,
  place: Place,
  failure: {problem: string; next?: string; cause?: unknown},
): CheckError {
  return new CheckError({
    code,
    problem: `${failure.problem} in ${place.file}:${place.line}.`,
    kept: KEPT,
    next: failure.next ?? 'Correct the file, then run `loantape build`.',
    cause: failure.cause,
  })
}

/**
 * The error of an SQL file the engine refused: its first words, at the file's line.
 *
 * @param firstLine the line of the file at which the engine's `LINE 1` stands
 */
export function createSqlError(code: string, what: string, place: Place, cause: unknown): CheckError {
  const words = messageOf(cause)
  const engineLine = /^LINE (\d+):/m.exec(words)?.[1]
  const line = engineLine === undefined ? place.line : place.line + Number(engineLine) - 1
  const said = words
    .split(/\n\s*\n?LINE \d+:/)[0]
    ?.split('\n')
    .slice(0, 3)
    .join(' ')
    .trim()
  return createModelError(code, {file: place.file, line}, {problem: `${what}: ${said},`, cause})
}
