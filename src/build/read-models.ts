import {globSync} from 'node:fs'
import {basename, join, sep} from 'node:path'
import {DEAL_ID} from '../contract/deal.ts'
import {type ErrorCode, type LoantapeError, messageOf, newError} from '../core/errors.ts'
import {expectOneOf} from '../core/text.ts'
import type {Model} from '../core/types.ts'
import {readSqlFile, SQL_DIR, splitHeader} from '../store/sql.ts'

/** A position in a file. */
export interface Place {
  file: string
  line: number
}

/**
 * The error of a model or seed file, naming file and line in the form that terminals and editors open; always a `CheckError`,
 * exit 3.
 */
export function createModelError(
  code: ErrorCode,
  {file, line}: Place,
  problem: string,
  cause?: unknown,
): LoantapeError {
  return newError(code, `${problem} in ${file}:${line}.`, {cause})
}

/**
 * The error of an SQL file that the engine refused: the first lines of its message, at the right line of the file.
 *
 * @param place its line is where the engine's `LINE 1` stands
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

/** Folders that hold no models. */
const OTHER_FOLDERS = new Set(['migrations', 'seeds', 'checks', 'tests', 'pages'])

/** Schemas that belong to the pipeline or to the engine. */
const RESERVED_SCHEMAS = new Set([
  'raw',
  'seed',
  'main',
  'temp',
  'pg_catalog',
  'information_schema',
  // Names of databases attached while building: `history.x` would be ambiguous.
  'history',
  'release',
  'unkept',
  'kept',
  'changed',
  'memory',
  'system',
])

/** Models of this schema are built for other models and dropped before the release is checked. */
export const WORK_SCHEMA = 'work'

const modelName = /^[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*$/
const fieldLine = /^-- ([a-z][a-z0-9_]*): (.*\S)\s*$/
const checkTag = /^([a-z_]+)\((.*)\)$/

/**
 * Reads every `<schema>/<name>.sql` of the folders as the model `<schema>.<name>`. A later folder's file replaces an
 * earlier one of the same name; a file outside a schema's folder, or below one, is refused.
 *
 * @returns models by name
 * @throws CheckError `MODEL_FILE`, with file and line
 */
export function readModels(folders: readonly string[]): Model[] {
  const models = new Map<string, Model>()
  for (const folder of folders) {
    const isOther = (part: string) => OTHER_FOLDERS.has(part) || (folder === SQL_DIR && part === 'queries')
    for (const path of globSync(['*.sql', '*/*.sql', '*/*/*.sql'], {cwd: folder})) {
      const parts = path.split(sep)
      if (parts.some(isOther)) continue
      const file = join(folder, path)
      const [schema = '', base = ''] = parts
      const name = `${schema}.${basename(base, '.sql')}`
      if (parts.length !== 2 || !modelName.test(name) || RESERVED_SCHEMAS.has(schema)) {
        const expected = `expected <schema>/<name>.sql, lower-case words, the schema not ${[...RESERVED_SCHEMAS].join(', ')},`
        throw createModelError('MODEL_FILE', {file, line: 1}, `File '${parts.join('/')}': ${expected}`)
      }
      models.set(name, parseModel({schema, name, file, text: readSqlFile(file)}))
    }
  }
  return [...models.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
}

/**
 * Reads a model. Its header is the comment lines at its top: docs/analyst-guide.md#a-table-of-your-own.
 *
 * @throws CheckError `MODEL_FILE`, with file and line
 */
export function parseModel(source: {schema: string; name: string; file: string; text: string}): Model {
  const {schema, name, file, text} = source
  const {header, sql} = splitHeader(text)
  requireUnbroken(file, text, header.length)
  const model: Model = {
    name,
    schema,
    file,
    sql,
    description: '',
    grain: [],
    order: [],
    columns: [],
    checks: [],
    isPublished: schema !== WORK_SCHEMA,
    isPerDeal: false,
    contract: 1,
    addsUp: [],
  }
  for (const [index, line] of header.entries()) readHeaderLine(model, line.trimEnd(), index + 1)
  const last = {file, line: Math.max(1, header.length)}
  if (model.description === '') throw headerError({file, line: 1}, 'no description: expected `-- what it is`')
  if (model.grain.length === 0) throw headerError(last, 'no grain: expected `-- grain: deal_id`')
  const {grain, order, addsUp} = model
  const per = model.isPerDeal ? [DEAL_ID] : []
  for (const [field, columns] of Object.entries({grain, order, per, adds_up: addsUp})) {
    const unknown = columns.find((column) => !model.columns.some(({name}) => name === column))
    if (unknown === undefined) continue
    throw headerError(
      last,
      `${field} column '${unknown}' is not described: expected \`-- ${unknown}: meaning\``,
    )
  }
  if (model.order.length === 0) model.order.push(...model.grain)
  return model
}

/** Requires a header without blank lines: lines after one would be ignored. */
function requireUnbroken(file: string, text: string, headerLines: number): void {
  const rest = text.split('\n').slice(headerLines)
  const next = rest.find((line) => line.trim() !== '') ?? ''
  if (rest[0]?.trim() === '' && fieldLine.test(next)) {
    const problem = `blank line before '${next}': it ends the header; expected none`
    throw headerError({file, line: headerLines + 1}, problem)
  }
}

function readHeaderLine(model: Model, line: string, lineNo: number): void {
  if (line === '--') return
  const place = {file: model.file, line: lineNo}
  const field = fieldLine.exec(line)
  if (field) {
    const [, key = '', value = ''] = field
    if (key === 'grain') model.grain.push(...splitList(value))
    // Columns may have these names, too, but come later.
    else if (key === 'order' && model.columns.length === 0) model.order.push(...splitList(value))
    else if (key === 'per' && model.columns.length === 0) {
      if (value !== DEAL_ID) throw headerError(place, `per '${value}': expected \`-- per: ${DEAL_ID}\``)
      model.isPerDeal = true
    } else if (key === 'adds_up' && model.columns.length === 0) model.addsUp.push(...splitList(value))
    else if (key === 'contract' && /^[1-9]\d{0,5}$/.test(value)) model.contract = Number(value)
    else if (key === 'check') {
      const [, rule = value, args = ''] = checkTag.exec(value) ?? []
      model.checks.push({rule, args: splitList(args), line: lineNo})
    } else if (model.columns.some(({name}) => name === key)) {
      throw headerError(place, `column '${key}' is described twice: expected one line for each column`)
    } else model.columns.push({name: key, meaning: value, line: lineNo})
    return
  }
  const words = /^--(\s+)(.*)$/.exec(line)
  const column = model.columns.at(-1)
  if (words?.[2] && model.grain.length === 0 && !column) {
    model.description = [model.description, words[2]].filter(Boolean).join(' ')
  } else if (words?.[2] && words[1] === '   ' && column) {
    column.meaning = `${column.meaning} ${words[2]}`
  } else {
    throw headerError(
      place,
      `header line '${line}': expected \`-- column: meaning\`, \`-- grain:\`, \`-- order:\`, \`-- per: ${DEAL_ID}\`, \`-- contract: 2\`, \`-- adds_up:\` or \`-- check:\``,
    )
  }
}

function splitList(text: string): string[] {
  return text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '')
}

function headerError(place: Place, problem: string): Error {
  return createModelError('MODEL_FILE', place, `Model header: ${problem},`)
}

/** What each model reads; a name that is not a key is not a model. */
type Reads = ReadonlyMap<string, readonly string[]>

const selectorPattern = /^(\+?)([a-z0-9_*?]+\.[a-z0-9_*?]+)(\+?)$/

/**
 * The models that a selection names. Its parts are separated by commas or spaces and add up: `mart.run` is one model, `mart.*` a
 * schema, `+mart.run` a model with everything it is built from, `mart.run+` with everything built from it.
 *
 * @returns names of models
 * @throws ConfigError `USAGE`, or `UNKNOWN_NAME` when a part names no model
 */
export function selectModels(selection: string, reads: Reads): ReadonlySet<string> {
  const parts = selection.split(/[\s,]+/).filter((part) => part !== '')
  const listReaders = (name: string) => [...reads.keys()].filter((other) => reads.get(other)?.includes(name))
  const selected = (parts.length > 0 ? parts : [selection]).flatMap((part) => {
    const match = selectorPattern.exec(part)
    if (!match)
      throw newError(
        'USAGE',
        `Selection '${part}' in --select: expected schema.model, schema.*, +schema.model or schema.model+.`,
      )
    const [, parents, glob = '', children] = match
    const pattern = new RegExp(`^${glob.replaceAll('.', '\\.').replaceAll('*', '.*').replaceAll('?', '.')}$`)
    const named = [...reads.keys()].filter((name) => pattern.test(name))
    if (named.length === 0)
      throw newError(
        'UNKNOWN_NAME',
        `Selection '${part}' in --select names no model: ${expectOneOf(glob, [...reads.keys()].toSorted())}.`,
      )
    return [
      ...named,
      ...(parents === '' ? [] : withAncestors(new Set(named), reads)),
      ...(children === '' ? [] : expand(named, listReaders)),
    ]
  })
  return new Set(selected)
}

/** The models that these are built from, including themselves. */
export function withAncestors(names: ReadonlySet<string>, reads: Reads): ReadonlySet<string> {
  return expand([...names], (name) => (reads.get(name) ?? []).filter((read) => reads.has(read)))
}

function expand(names: readonly string[], next: (name: string) => readonly string[]): Set<string> {
  const reached = new Set(names)
  // A set also visits what is added meanwhile.
  for (const name of reached) for (const other of next(name)) reached.add(other)
  return reached
}
