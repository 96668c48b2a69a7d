import {CATALOGUE, EXIT_CODES, exitCodeOf, newError} from '../errors.ts'
import {findNearest} from '../nearest.ts'
import type {CliCommand} from './command.ts'

/** `loantape explain`. */
export default function addExplain(command: CliCommand): void {
  command
    .description('what an error means by its code: what is kept, what to do; all codes where none is given')
    .example('explain GUARD_SHRINK')
    .argument('[code]', 'as it stands in brackets behind a message, or a part of it')
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

/** @throws ConfigError `UNKNOWN_NAME` naming the codes that hold what was asked, or the nearest */
function explain(asked: string): Explained {
  const word = asked.toUpperCase().replace(/^\[|\]$/g, '')
  const all = listAll()
  const found = all.find(({code}) => code === word)
  if (found) return found
  const codes = all.map(({code}) => code)
  const holding = (part?: string) => (part === undefined ? [] : codes.filter((code) => code.includes(part)))
  const nearest = [
    () => holding(word),
    () => holding(findNearest(word, codes)),
    () => holding(findNearest(word, [...new Set(codes.flatMap((code) => code.split('_')))])),
  ].reduce<string[]>((found, look) => (found.length > 0 ? found : look()), [])
  throw newError(
    'UNKNOWN_NAME',
    `Code '${asked}': expected ${nearest.length > 0 ? nearest.join(', ') : 'a code that there is'}.`,
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
