import {basename, extname, join, sep} from 'node:path'
import {DEAL_ID} from '../contract/deal.ts'
import {type ErrorCode, type LoantapeError, messageOf, newError} from '../core/errors.ts'
import {expectOneOf} from '../core/text.ts'
import type {Model} from '../core/types.ts'
import {listNames} from '../store/data-folder.ts'
import {readSqlFile, SQL_DIR, splitHeader} from '../store/sql.ts'

export interface Place {
  file: string
  line: number
}

/** File and line are in the form that terminals and editors open. Always a `CheckError`. */
export function createModelError(
  code: ErrorCode,
  {file, line}: Place,
  problem: string,
  cause?: unknown,
): LoantapeError {
  return newError(code, `${problem} in ${file}:${line}.`, {cause})
}

/**
 * Of an SQL file that the engine refused: the first lines of its message, and the line in the file. `place` is the position of
 * the engine's `LINE 1`; `isOfRecords` hides the values in the message, which goes into alarms.
 */
export function createSqlError(
  code: ErrorCode,
  what: string,
  place: Place,
  cause: unknown,
  isOfRecords = false,
): LoantapeError {
  const words = messageOf(cause)
  const engineLine = /^LINE (\d+):/m.exec(words)?.[1]
  const line = engineLine === undefined ? place.line : place.line + Number(engineLine) - 1
  const [refusal = ''] = words.split(/\n\s*\n?LINE \d+:/)
  const said = (isOfRecords ? hideValues(refusal) : refusal).split('\n').slice(0, 3).join(' ').trim()
  return createModelError(code, {file: place.file, line}, `${what}: ${said},`, cause)
}

/** The first line of what the engine says of records, without the values that it could not convert or compute with. */
export const hideValues = (words: string): string =>
  words
    .replace(/(['"]).*\1/s, '$1…$1')
    .replace(/(?<=\bvalue )[^\s'"]+/, '…')
    .replace(/\(-?[\d.]+ \S -?[\d.]+\)/, '(…)')
    .replace(/\n.*/s, '')

/** Accounts and notes become seeds, too. */
const SEED_FILE = /^(?!(account|note)\.)[a-z][a-z0-9_]*\.csv$/

/** Folders that hold no models, with the form of their files of SQL and CSV, where those are read by their names alone. */
const OTHER_FOLDERS = new Map([
  ['migrations', undefined],
  ['tests', undefined],
  ['pages', undefined],
  ['seeds', {pattern: SEED_FILE, form: 'seeds/<name>.csv, lower-case words, not account or note,'}],
  ['checks', {pattern: /\.sql$/, form: 'checks/<name>.sql,'}],
])

const RESERVED_SCHEMAS = new Set([
  'raw',
  'seed',
  'main',
  'temp',
  'pg_catalog',
  'information_schema',
  // Names of databases attached during a build: `history.x` would be ambiguous.
  'history',
  'release',
  'unkept',
  'kept',
  'changed',
  'memory',
  'system',
  // Names of what loantape itself keeps where releases are published.
  'loantape',
  'fleet',
  'total',
])

/** The schema of models that only serve other models; they are dropped before the release is checked. */
export const WORK_SCHEMA = 'work'

const modelName = /^[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*$/
/** A column that a header can describe. */
export const COLUMN_NAME = /^[a-z][a-z0-9_]*$/
const fieldLine = /^-- ([a-z][a-z0-9_]*): (.*\S)\s*$/
const checkTag = /^([a-z_]+)\((.*)\)$/

/**
 * Reads every `<schema>/<name>.sql` of the folders as the model `<schema>.<name>`; a later folder's file replaces an earlier one
 * of the same name. A file of SQL outside or below a schema's folder is refused, and so is a check or seed that nobody would
 * read.
 * @throws CheckError `MODEL_FILE`, with file and line
 */
export function readModels(folders: readonly string[]): Model[] {
  const models = new Map<string, Model>()
  for (const folder of folders) {
    for (const path of listPaths(folder)) {
      const ending = extname(path).toLowerCase()
      const parts = path.split(sep)
      const [schema = '', base = ''] = parts
      const other = OTHER_FOLDERS.get(schema)
      if (ending !== '.sql' && !(ending === '.csv' && other)) continue
      const file = join(folder, path)
      const require = (isFine: boolean, form: string) => {
        if (parts.length === 2 && isFine) return
        throw createModelError('MODEL_FILE', {file, line: 1}, `File '${parts.join('/')}': expected ${form}`)
      }
      if (other && folder !== SQL_DIR) require(other.pattern.test(base), other.form)
      if (OTHER_FOLDERS.has(schema) || (folder === SQL_DIR && schema === 'queries')) continue
      const name = `${schema}.${basename(base, '.sql')}`
      const form = `<schema>/<name>.sql, lower-case words, the schema not ${[...RESERVED_SCHEMAS].join(', ')},`
      require(modelName.test(name) && !RESERVED_SCHEMAS.has(schema), form)
      models.set(name, parseModel({schema, name, file, text: readSqlFile(file)}))
    }
  }
  return [...models.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
}

/** Of files and folders, relative; links are followed. */
function listPaths(folder: string, levels = 3): string[] {
  if (levels === 0) return []
  return listNames(folder).flatMap((name) => [
    name,
    ...listPaths(join(folder, name), levels - 1).map((path) => join(name, path)),
  ])
}

/**
 * The header is the comment lines at the top: docs/analyst-guide.md#a-table-of-your-own.
 * @throws CheckError `MODEL_FILE`, with file and line
 */
export function parseModel(source: {schema: string; name: string; file: string; text: string}): Model {
  const {schema, name, file, text} = source
  const {header, sql} = splitHeader(text)
  const refuse = (line: number, problem: string) =>
    createModelError('MODEL_FILE', {file, line}, `Model header: ${problem},`)
  const lists = new Map(['grain', 'order', 'per', 'adds_up'].map((tag): [string, string[]] => [tag, []]))
  const [grain = [], order = [], per = [], addsUp = []] = lists.values()
  const description: string[] = []
  const columns: Model['columns'] = []
  const checks: Model['checks'] = []
  let contract = 1
  for (const [index, line] of header.entries()) {
    const at = index + 1
    const [, key, value = ''] = fieldLine.exec(line) ?? []
    const [, indent, words] = /^--(\s+)(.*)$/.exec(line) ?? []
    const column = columns.at(-1)
    // A column may have one of these names, but columns come later.
    const list = key === 'grain' || !column ? lists.get(key ?? '') : undefined
    if (key === 'per' && list && value !== DEAL_ID)
      throw refuse(at, `per '${value}': expected \`-- per: ${DEAL_ID}\``)
    if (list) list.push(...splitList(value))
    else if (key === 'contract' && /^[1-9]\d{0,5}$/.test(value)) contract = Number(value)
    else if (key === 'check') {
      const [, rule = value, args = ''] = checkTag.exec(value) ?? []
      checks.push({rule, args: splitList(args), line: at})
    } else if (key !== undefined) {
      if (columns.some((other) => other.name === key))
        throw refuse(at, `column '${key}' is described twice: expected one line for each column`)
      columns.push({name: key, meaning: value, line: at})
    } else if (words && grain.length === 0 && !column) description.push(words)
    else if (words && indent === '   ' && column) column.meaning += ` ${words}`
    else if (line !== '--') {
      const tags = `\`-- grain:\`, \`-- order:\`, \`-- per: ${DEAL_ID}\`, \`-- contract: 2\`, \`-- adds_up:\` or \`-- check:\``
      throw refuse(at, `header line '${line}': expected \`-- column: meaning\`, ${tags}`)
    }
  }
  // Lines after a blank one would be ignored.
  const rest = text.split('\n').slice(header.length)
  const next = rest.find((line) => line.trim() !== '') ?? ''
  if (rest[0]?.trim() === '' && fieldLine.test(next))
    throw refuse(header.length + 1, `blank line before '${next}': it ends the header; expected none`)
  const last = Math.max(1, header.length)
  if (description.length === 0) throw refuse(1, 'no description: expected `-- what it is`')
  if (grain.length === 0) throw refuse(last, 'no grain: expected `-- grain: deal_id`')
  for (const [field, names] of lists) {
    const unknown = names.find((column) => !columns.some(({name}) => name === column))
    if (unknown !== undefined)
      throw refuse(last, `${field} column '${unknown}' is not described: expected \`-- ${unknown}: meaning\``)
  }
  return {
    name,
    schema,
    file,
    sql,
    description: description.join(' '),
    grain,
    order: [...new Set([...order, ...grain])],
    columns,
    checks,
    isPublished: schema !== WORK_SCHEMA,
    isOfDeals: per.length > 0,
    isPerDeal: per.length > 0,
    contract,
    addsUp,
  }
}

function splitList(text: string): string[] {
  return text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '')
}

/** A name that is not a key here is a seed or raw table. */
type Reads = ReadonlyMap<string, readonly string[]>

const selectorPattern = /^(\+?)([a-z0-9_*?]+\.[a-z0-9_*?]+)(\+?)$/

/**
 * Parts are separated by commas or spaces and add up: `mart.run` is one model, `mart.*` a schema, `+mart.run` a model with
 * everything it is built from, `mart.run+` with everything built from it.
 * @throws ConfigError `USAGE`, or `UNKNOWN_NAME` if a part names no model
 */
export function selectModels(selection: string, reads: Reads): ReadonlySet<string> {
  const parts = selection.split(/[\s,]+/).filter((part) => part !== '')
  const listReaders = (name: string) => [...reads.keys()].filter((other) => reads.get(other)?.includes(name))
  const selected = (parts.length > 0 ? parts : [selection]).flatMap((part) => {
    const match = selectorPattern.exec(part)
    if (!match) {
      const expected = 'expected schema.model, schema.*, +schema.model or schema.model+'
      throw newError('USAGE', `Selection '${part}' in --select: ${expected}.`)
    }
    const [, parents, glob = '', children] = match
    const pattern = new RegExp(`^${glob.replaceAll('.', '\\.').replaceAll('*', '.*').replaceAll('?', '.')}$`)
    const named = [...reads.keys()].filter((name) => pattern.test(name))
    if (named.length === 0) {
      const expected = expectOneOf(glob, [...reads.keys()].toSorted())
      throw newError('UNKNOWN_NAME', `Selection '${part}' in --select names no model: ${expected}.`)
    }
    return [
      ...named,
      ...(parents === '' ? [] : withAncestors(new Set(named), reads)),
      ...(children === '' ? [] : expand(named, listReaders)),
    ]
  })
  return new Set(selected)
}

export function withAncestors(names: ReadonlySet<string>, reads: Reads): ReadonlySet<string> {
  return expand([...names], (name) => (reads.get(name) ?? []).filter((read) => reads.has(read)))
}

function expand(names: readonly string[], next: (name: string) => readonly string[]): Set<string> {
  const reached = new Set(names)
  // Iterating a set also visits what is added meanwhile.
  for (const name of reached) for (const other of next(name)) reached.add(other)
  return reached
}
