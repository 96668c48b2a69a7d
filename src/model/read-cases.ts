import {existsSync, readdirSync} from 'node:fs'
import {basename, join, relative} from 'node:path'
import {
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  parseDocument,
  visit,
} from 'yaml'
import {z} from 'zod'
import {CheckError, newError} from '../errors.ts'
import {expectOneOf} from '../nearest.ts'
import type {BuildPlan, Seed} from '../types.ts'
import {listFiles, readSqlFile} from '../warehouse/sql-file.ts'
import type {CaseWalk} from './case-history.ts'
import {buildCase, CASE_KEYS, type CaseSource} from './case-schema.ts'
import type {TextRow} from './compare-rows.ts'
import {formatPlace} from './model-error.ts'

/** Rows in, rows out: what one history makes of one model. */
export interface ModelCase {
  table: string
  name: string
  file: string
  line: number
  /** The business day; that of the last walk by default. */
  asOf: string | undefined
  knownAt: string | undefined
  /** Those that the case gives, in the place of what they replace. */
  seeds: readonly Seed[]
  /** By their business day or the instant they began at. */
  walks: Readonly<Record<string, CaseWalk>>
  /** A condition on the rows that are looked at. */
  where: string
  /** All rows; only the columns named here are looked at. */
  rows: readonly TextRow[]
}

/**
 * The `tests/<schema>.<table>.yaml` of a folder of models.
 *
 * @throws CheckError `TEST_FILE` where a YAML file lies elsewhere beside models, or a file of tests has another name
 */
export function listCaseFiles(folder: string, {models}: Pick<BuildPlan, 'models'>): string[] {
  const tests = join(folder, 'tests')
  const named = (file: string) => models.some(({name}) => name === basename(file).replace(/\.ya?ml$/, ''))
  const holdsModels = (path: string) => ['.sql', '.csv'].some((ending) => listFiles(path, ending).length > 0)
  const folders = [folder, ...listFolders(folder), ...listFolders(tests)]
  const strays = folders.flatMap((path) => {
    const yaml = ['.yaml', '.yml'].flatMap((ending) => listFiles(path, ending))
    if (path === tests) return [...listFiles(path, '.sql'), ...listFiles(path, '.yml')]
    return path.startsWith(tests) || (path !== folder && holdsModels(path)) ? yaml : yaml.filter(named)
  })
  requireNone(
    strays.map((file) => {
      const check = file.endsWith('.sql')
        ? '; a SELECT of rows that are wrong is a check, checks/<name>.sql'
        : ''
      return `File '${relative(folder, file)}' in ${folder}: expected tests/<schema>.<table>.yaml${check}`
    }),
  )
  return listFiles(tests, '.yaml')
}

function listFolders(path: string): string[] {
  if (!existsSync(path)) return []
  const entries = readdirSync(path, {withFileTypes: true})
  return entries
    .filter((entry) => entry.isDirectory() && !entry.name.startsWith('.'))
    .map((entry) => join(path, entry.name))
}

/**
 * Reads the cases of `<schema>.<table>.yaml` files.
 *
 * @throws CheckError `TEST_FILE` naming all that is wrong in them, each with file, line and column
 */
export function readCases(files: readonly string[], source: CaseSource): ModelCase[] {
  const read = files.map((file) => readFile(file, source))
  requireNone(read.flatMap(({problems}) => problems))
  return read.flatMap(({cases}) => cases)
}

function requireNone(problems: readonly string[]): void {
  const [first, ...others] = problems
  if (first === undefined) return
  const list = problems.map((problem) => `  - ${problem}\n`).join('')
  throw newError(
    'TEST_FILE',
    others.length === 0 ? `${first}.` : `Tests have ${problems.length} problems:\n${list}`,
  )
}

interface Read {
  cases: ModelCase[]
  problems: string[]
}

function readFile(file: string, source: CaseSource): Read {
  const table = basename(file, '.yaml')
  const names = source.plan.models.map(({name}) => name)
  if (!names.includes(table)) {
    const expected = expectOneOf(table, names.toSorted())
    return {cases: [], problems: [`Table '${table}' of ${file} is no model: ${expected}`]}
  }
  try {
    return readText({file, table, text: readSqlFile(file)}, source)
  } catch (error) {
    if (error instanceof CheckError) return {cases: [], problems: [error.problem.replace(/\.$/, '')]}
    throw error
  }
}

function readText(
  {file, table, text}: {file: string; table: string; text: string},
  source: CaseSource,
): Read {
  const lines = new LineCounter()
  const document = parseDocument(text, {schema: 'failsafe', lineCounter: lines, prettyErrors: false})
  const atPlace = (problem: string, offset: number) => {
    const {line, col: column} = lines.linePos(offset)
    return `${problem}, in ${formatPlace({file, line, column})}`
  }
  const unreadable = document.errors.map(({code, message, pos: [offset]}) =>
    atPlace(describeYaml(code, message, text.slice(offset)), offset),
  )
  // What follows the first is often its consequence.
  if (unreadable.length > 0) return {cases: [], problems: unreadable.slice(0, 1)}
  const unknown = markEmpty(document).map(({problem, offset}) => atPlace(problem, offset))
  if (unknown.length > 0) return {cases: [], problems: unknown}
  const parsed = z
    .record(z.string(), buildCase(table, source), {error: CASES_EXPECTED})
    .refine((cases) => Object.keys(cases).length > 0, CASES_EXPECTED)
    .safeParse(document.toJS())
  if (!parsed.success) {
    const described = parsed.error.issues.flatMap(flatten).map((issue) => describeIssue(issue, document))
    return {cases: [], problems: described.map(({problem, offset}) => atPlace(problem, offset))}
  }
  const cases = Object.entries(parsed.data).map(([name, tested]) => {
    const {line} = lines.linePos(findNode(document, [name], true).offset)
    return {table, name, file, line, ...tested}
  })
  return {cases, problems: []}
}

const CASES_EXPECTED = 'expected the names of cases, below each its `walks` and `rows`'

function describeYaml(code: string, message: string, rest: string): string {
  if (code === 'TAB_AS_INDENT') return 'Tab at the beginning of a line: expected spaces'
  if (code === 'DUPLICATE_KEY') return `Name '${/^[^:\n]*/.exec(rest)?.[0]}' stands twice: expected once`
  return `YAML that cannot be read: ${message.replace(/\.$/, '')}`
}

/** Makes what has no text null, so that it is told from `''`; finds aliases of nothing. */
function markEmpty(document: Document): {offset: number; problem: string}[] {
  const unknown: {offset: number; problem: string}[] = []
  visit(document, {
    Scalar(key, node) {
      if (key !== 'key' && node.type === 'PLAIN' && node.source === '') node.value = null
    },
    Alias(_key, node) {
      const problem = `Alias '*${node.source}': expected an anchor '&${node.source}' above`
      if (!node.resolve(document)) unknown.push({offset: node.range?.[0] ?? 0, problem})
    },
  })
  return unknown
}

type Issue = z.core.$ZodIssue

/** What is wrong in a union is what is wrong with the alternative that the value resembles. */
function flatten(issue: Issue): Issue[] {
  if (issue.code === 'unrecognized_keys') return issue.keys.map((key) => ({...issue, keys: [key]}))
  if (issue.code !== 'invalid_union') return [issue]
  const [first = [], ...others] = issue.errors
  const alike = others.find((issues) => issues.some(({path}) => path.length > 0)) ?? first
  return alike.flatMap((inner) => flatten({...inner, path: [...issue.path, ...inner.path]}))
}

function describeIssue(issue: Issue, document: Document): {problem: string; offset: number} {
  const isName =
    issue.code === 'unrecognized_keys' ||
    issue.code === 'invalid_key' ||
    (issue.code === 'custom' && issue.params?.isName === true)
  const path = issue.code === 'unrecognized_keys' ? [...issue.path, ...issue.keys] : issue.path
  const {node, offset} = findNode(document, path, isName)
  const text = isScalar(node) && node.value !== null ? String(node.value) : undefined
  const [name, ...inner] = path.map((part) => (typeof part === 'number' ? part + 1 : String(part)))
  const places = (isName ? inner.slice(0, -1) : inner).join(' › ')
  const where = `${places === '' ? '' : ` at ${places}`}${name === undefined ? '' : ` of case '${name}'`}`
  const subject = isName ? `Name '${inner.at(-1)}'` : describeValue(node, text)
  return {problem: `${subject}${where}: ${expectationOf(issue, text ?? '')}`, offset}
}

function describeValue(node: Node | undefined, text: string | undefined): string {
  if (text !== undefined) return `Value '${text.split('\n')[0]}'`
  return isMap(node) || isSeq(node) ? 'What stands' : 'Nothing'
}

function expectationOf(issue: Issue, text: string): string {
  if (issue.code === 'unrecognized_keys') return expectOneOf(issue.keys[0] ?? '', CASE_KEYS)
  if (issue.code === 'invalid_value')
    return `${expectOneOf(text, issue.values.map(String))}, or columns with values`
  if (issue.code === 'invalid_key') return issue.issues[0]?.message ?? ''
  if (issue.code !== 'invalid_type' || issue.message.startsWith('expected')) return issue.message
  return issue.expected === 'string'
    ? "expected a text, a number or a date; null for none, '' for an empty text"
    : `expected ${issue.expected === 'array' ? 'a list' : 'names with values'}`
}

/** Where a path leads, or its last name stands; where it leads nowhere, how far it led. */
function findNode(
  document: Document,
  path: readonly PropertyKey[],
  isName: boolean,
): {node?: Node | undefined; offset: number} {
  let node: Node | null = document.contents
  let offset = 0
  for (const [index, name] of path.entries()) {
    const owner: unknown = isAlias(node) ? node.resolve(document) : node
    const pair = isMap<Node, Node>(owner)
      ? owner.items.find(({key}) => isScalar(key) && key.value === name)
      : undefined
    const item = isSeq<Node>(owner) ? owner.items[Number(name)] : pair?.value
    if (!item) return {offset}
    node = item
    offset = (isName && index === path.length - 1 ? pair?.key : item)?.range?.[0] ?? offset
  }
  return {node: node ?? undefined, offset}
}
