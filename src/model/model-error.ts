import {type ErrorCode, type LoantapeError, messageOf, newError} from '../errors.ts'

/** A place in a file that a person can open. */
export interface Place {
  file: string
  line: number
  /** From 1. */
  column?: number
}

/** A place as terminals and editors open it: `sql/seeds/status.csv:3:7`. */
function formatPlace({file, line, column}: Place): string {
  return column === undefined ? `${file}:${line}` : `${file}:${line}:${column}`
}

/** The error of a model or seed file, naming file and line; always a `CheckError`, exit 3. */
export function createModelError(
  code: ErrorCode,
  place: Place,
  problem: string,
  cause?: unknown,
): LoantapeError {
  return newError(code, `${problem} in ${formatPlace(place)}.`, {cause})
}

/**
 * The error of an SQL file the engine refused: its first words, at the file's line.
 *
 * @param firstLine the line of the file at which the engine's `LINE 1` stands
 */
export function createSqlError(code: ErrorCode, what: string, place: Place, cause: unknown): LoantapeError {
  const words = messageOf(cause)
  const engineLine = /^LINE (\d+):/m.exec(words)?.[1]
  const line = engineLine === undefined ? place.line : place.line + Number(engineLine) - 1
  const said = words
    .split(/\n\s*\n?LINE \d+:/)[0]
    ?.split('\n')
    .slice(0, 3)
    .join(' ')
    .trim()
  return createModelError(code, {file: place.file, line}, `${what}: ${said},`, cause)
}
