import {lstatSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {sourceText} from '../contract/stream.ts'
import type {Config} from '../core/config.ts'
import {codeOf, newError} from '../core/errors.ts'
import {isObject, parseWritten, type Refuse} from '../core/json.ts'
import {dataFolderAt, requireWritable} from '../store/data-folder.ts'
import {readWrittenText, writeNewFile} from '../store/files.ts'
import {findCurrentRelease, openRelease, type Release} from '../store/release.ts'
import defaultMapping from './default-mapping.json' with {type: 'json'}
import type {JournalLine} from './profiles.ts'

/** Sorts before every month. */
export const FIRST_PERIOD = '0000-00'

/** It holds from `since` until that of the next one. */
export interface MappingVersion {
  /** `YYYY-MM`; {@link FIRST_PERIOD} for the first. */
  since: string
  mapping: AccountMapping
  /** Balances booked earlier are moved to its accounts, on the first day of `since`. */
  movesBalances: boolean
}

/** Stands for all programs not named, and for deals without a program. */
const ANY_PROGRAM = '*'

const CONTROLS = /\p{Cc}|\p{Cf}|\p{Zl}|\p{Zp}/u

const text = (longest: number) =>
  z
    .string()
    .max(longest, `expected at most ${longest} characters`)
    .refine((value) => value === value.trim(), 'expected no spaces around')
    .refine((value) => !CONTROLS.test(value), 'expected no line ends or other control characters')

const given = (longest: number) => text(longest).refine((value) => value !== '', 'expected a value')

/** Some accounting systems look it up by code, others by name. */
type Account = z.output<typeof account>
const account = z.strictObject({
  code: given(60),
  name: given(504).refine(
    (path) => path.split(':').every((name) => name.trim().length <= 100),
    'expected at most 100 characters in each name',
  ),
})

/** How a funded deal can end, as `seed.status.ending` says; `other` is its `ended_other`, or none. */
const ENDINGS = ['paid_off', 'sold', 'refinanced', 'foreclosed', 'charged_off', 'other'] as const

/** Takes the place of an account if another system, such as the servicing system, books an ending. */
const ELSEWHERE = 'elsewhere'

/** One of two schemas, by the form of the value: a union would not report problems at the fields of that one. */
const either = <A, B>(isFirst: (value: unknown) => boolean, first: z.ZodType<A>, second: z.ZodType<B>) =>
  z.unknown().transform((value, context): A | B => {
    const {data, error} = (isFirst(value) ? first : second).safeParse(value)
    if (!error) return data
    for (const {path, message} of error.issues) context.addIssue({code: 'custom', path: [...path], message})
    return z.NEVER
  })

const isElsewhere = (value: unknown) => value === ELSEWHERE

const booking = either(isElsewhere, z.literal(ELSEWHERE), account)

/** A booking for each ending, or one for all of them. */
const endings = either(
  (value) => isElsewhere(value) || (isObject(value) && ('code' in value || 'name' in value)),
  booking.transform((one) => Object.fromEntries(ENDINGS.map((ending) => [ending, one]))),
  z.partialRecord(z.enum(ENDINGS), booking),
)

/** `accounting.json`, described in docs/accounting.md. */
export type AccountMapping = z.output<typeof mappingSchema>
export const mappingSchema = z.strictObject({
  receivable: z.record(sourceText.regex(/\S/), account),
  clearing: account,
  ended: endings.prefault({}),
  opening: account.optional(),
  journal: given(20).prefault('GJ'),
  currency: given(20).prefault('USD'),
  tax_rate: given(50).prefault('Tax Exempt'),
  entity: text(100).prefault(''),
  subsidiary: text(100).prefault(''),
  department: text(100).prefault(''),
  location: text(100).prefault(''),
  class: text(100).prefault(''),
  tracking: z
    .array(z.strictObject({name: given(100), option: given(100)}))
    .max(2, 'expected at most two')
    .prefault([]),
})

/** Used without a file. */
export const DEFAULT_MAPPING = mappingSchema.parse(defaultMapping)

/** A hint in angle brackets. */
const PLACEHOLDER = /^<.*>$/

/** The accounts of {@link DEFAULT_MAPPING}, with one receivable account for each program, all as placeholders. */
function draftMapping(programs: readonly string[]): string {
  const {receivable, ...others} = DEFAULT_MAPPING
  const named = Object.fromEntries(programs.map((program) => [program, receivable[ANY_PROGRAM]]))
  const mark = (_key: string, value: unknown) => {
    const {data} = account.safeParse(value)
    return data ? {code: `<${data.code}>`, name: `<${data.name}>`} : value
  }
  return `${JSON.stringify({receivable: {...named, ...receivable}, ...others}, mark, 2)}\n`
}

/** @throws ConfigError `ACCOUNTING_MAPPING` naming `file` and every field that is wrong */
export function parseMapping(json: string, file: string): AccountMapping {
  const refuse = refuseMapping(file)
  const mapping = parseWritten(json, refuse, mappingSchema)
  const clashes = findClashes(mapping)
  if (clashes.length > 0) throw refuse(clashes.join('; '))
  return mapping
}

/** Finds account codes with two names, or on both sides of an entry, which would then book nothing. */
function findClashes(mapping: AccountMapping): string[] {
  const names = new Map<string, string>()
  const receivables = new Set(Object.values(mapping.receivable).map(({code}) => code))
  return listAccounts(mapping).flatMap(({field, account: {code, name}}) => {
    const known = names.get(code) ?? name
    names.set(code, known)
    if (known !== name) return `${field}.name: '${name}', but account ${code} is '${known}' above`
    if (!receivables.has(code) || field.startsWith('receivable.')) return []
    return `${field}.code: ${code} is a receivable account, expected another for the other side of its entries`
  })
}

/** What an account is for: one program, one term of the roll-forward, or all. */
interface Role {
  field: string
  /** `receivable`, `clearing`, `opening`, `ended` or `elsewhere`. */
  role: string
  program?: string
  term?: string
  /** Null if another system books it. */
  account: Account | null
}

function listRoles({receivable, clearing, opening, ended}: AccountMapping): Role[] {
  const roles = Object.entries(receivable).map(
    ([program, account]): Role => ({field: `receivable.${program}`, role: 'receivable', program, account}),
  )
  roles.push({field: 'clearing', role: 'clearing', account: clearing})
  if (opening) roles.push({field: 'opening', role: 'opening', account: opening})
  for (const ending of ENDINGS) {
    const account = ended[ending]
    const about = {field: `ended.${ending}`, term: ending === 'other' ? 'ended_other' : ending}
    if (account === ELSEWHERE) roles.push({...about, role: 'elsewhere', account: null})
    else if (account) roles.push({...about, role: 'ended', account})
  }
  return roles
}

const listAccounts = (mapping: AccountMapping) =>
  listRoles(mapping).flatMap(({field, account}) => (account ? [{field, account}] : []))

/** `program` is null for deals without one. */
export function findReceivable({receivable}: AccountMapping, program: string | null): Account | undefined {
  return receivable[program !== null && Object.hasOwn(receivable, program) ? program : ANY_PROGRAM]
}

export function hasSameReceivables(a: AccountMapping, b: AccountMapping): boolean {
  const programs = [...Object.keys(a.receivable), ...Object.keys(b.receivable)]
  return programs.every((program) => findReceivable(a, program)?.code === findReceivable(b, program)?.code)
}

/** An account that the mapping lacks keeps its name. */
export function nameAccounts<T extends Pick<JournalLine, 'account_code' | 'account_name'>>(
  lines: readonly T[],
  mapping: AccountMapping,
): T[] {
  const names = new Map(listAccounts(mapping).map(({account: {code, name}}) => [code, name]))
  return lines.map((line) => {
    const account_name = names.get(line.account_code) ?? line.account_name
    return account_name === line.account_name ? line : {...line, account_name}
  })
}

/** As `'name' (1200, 1210)`: importers could not tell these apart. */
export function findSharedNames(mapping: AccountMapping): string[] {
  const accounts = listAccounts(mapping).map(({account}) => account)
  // QuickBooks ignores case.
  const folded = Map.groupBy(accounts, ({name}) => name.toLowerCase().replace(/\s+/g, ' '))
  return [...folded.values()].flatMap((those) => {
    const codes = new Set(those.map(({code}) => code))
    return codes.size > 1 ? [`'${those[0]?.name}' (${[...codes].join(', ')})`] : []
  })
}

const refuseMapping =
  (file: string): Refuse =>
  (problem, cause) =>
    newError('ACCOUNTING_MAPPING', `Account mapping '${file}': ${problem}.`, {
      next: 'Correct the file; docs/accounting.md describes every field.',
      cause,
    })

/**
 * `LOANTAPE_ACCOUNTING_FILE`, else `accounting.json` in the data folder; undefined without a file.
 * @throws ConfigError `ACCOUNTING_MAPPING` naming file and field
 */
export function findOwnMapping(config: Config): AccountMapping | undefined {
  const file = mappingFileOf(config)
  // Not so a link that leads nowhere now.
  if (config.accountingFile === undefined && !lstatSync(file, {throwIfNoEntry: false})) return undefined
  return parseMapping(readWrittenText(file, refuseMapping(file)), file)
}

function mappingFileOf({accountingFile, dataDir}: Pick<Config, 'accountingFile' | 'dataDir'>): string {
  return accountingFile ?? join(dataFolderAt(dataDir).root, 'accounting.json')
}

/**
 * Nothing is issued or closed under accounts that nobody chose.
 * @throws ConfigError `ACCOUNTING_NONE`, `ACCOUNTING_MAPPING`, `ACCOUNTING_PLACEHOLDER` naming the fields
 */
export function requireOwnMapping(config: Config): AccountMapping {
  const mapping = findOwnMapping(config)
  const file = mappingFileOf(config)
  if (!mapping) {
    throw newError(
      'ACCOUNTING_NONE',
      `Account mapping '${file}' does not exist: expected the accounts of your books.`,
    )
  }
  const placeholders = listAccounts(mapping).flatMap(({field, account: {code, name}}) =>
    PLACEHOLDER.test(code) || PLACEHOLDER.test(name) ? [field] : [],
  )
  if (placeholders.length === 0) return mapping
  throw newError(
    'ACCOUNTING_PLACEHOLDER',
    `Account mapping '${file}': ${placeholders.join(', ')} still in angle brackets: expected the code and name of an account of your books.`,
  )
}

/** An account for each program of the book, all placeholders. @throws ConfigError `OUT_PLACE` */
export async function initAccounting(config: Config): Promise<{file: string; programs: string[]}> {
  const folder = requireWritable(dataFolderAt(config.dataDir))
  const file = mappingFileOf(config)
  const release = findCurrentRelease(folder)
  const found = release ? await readPrograms(release) : []
  // Leaves out `__proto__`, which no record may contain as a name, and blank names, which a mapping cannot contain; '*' covers
  // them.
  const isNamed = (program: string) => program !== '__proto__' && /\S/.test(program)
  const programs = found.filter((program) => program !== null).filter(isNamed)
  try {
    writeNewFile(file, draftMapping(programs))
  } catch (cause) {
    const code = codeOf(cause)
    if (['ENOENT', 'ENOTDIR'].includes(code))
      throw newError('OUT_PLACE', `Account mapping '${file}' cannot be written (${code}).`, {
        next: 'Set LOANTAPE_ACCOUNTING_FILE to a file in a folder that is there.',
        cause,
      })
    if (code !== 'EEXIST') throw cause
    throw newError('OUT_PLACE', `Account mapping '${file}' already exists.`, {
      kept: 'It was not changed.',
      next: 'Edit it; docs/accounting.md describes every field.',
      cause,
    })
  }
  return {file, programs}
}

/** Holds null if a deal has no program. */
export async function readPrograms(release: Release): Promise<(string | null)[]> {
  await using db = await openRelease(release)
  const sql = 'select distinct loan_program from core.deal order by loan_program'
  return await db.column(z.string().nullable(), sql)
}

/** Rows of `seed.account`: the accounts of every mapping, by the period from which it holds. */
export function listAccountRows(versions: readonly MappingVersion[]) {
  return versions.flatMap(({since, mapping, movesBalances}) =>
    listRoles({...mapping, opening: mapping.opening ?? mapping.clearing}).map(
      ({role, program = null, term = null, account}) => ({
        account: [since, role, program ?? term].filter((part) => part !== null).join(' '),
        since,
        role,
        loan_program: program,
        term,
        account_code: account?.code ?? null,
        account_name: account?.name ?? null,
        moves_balances: `${movesBalances}`,
      }),
    ),
  )
}
