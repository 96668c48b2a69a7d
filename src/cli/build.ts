import {join} from 'node:path'
import {type BuildRequest, type BuildResult, buildRelease} from '../build/build.ts'
import {findPreviousRelease} from '../build/build-folder.ts'
import type {CaseResult, Tested} from '../build/cases.ts'
import {type Compared, compareBuilds} from '../build/compare-builds.ts'
import {diffReleases, type MovementPart, type TotalMovement} from '../build/movement.ts'
import {compareSchemas, readPublished} from '../build/published.ts'
import {formatInstant, isCalendarDate, parseInstant} from '../core/clock.ts'
import {exitCodeOf, newError} from '../core/errors.ts'
import {centsOf, formatCents, groupThousands, quantity} from '../core/money.ts'
import type {World} from '../core/types.ts'
import {createDataFolder, dataFolderAt, requireOutFile, requireWritable} from '../store/data-folder.ts'
import {writeFileAtomically} from '../store/files.ts'
import type {Release, ReleaseManifest} from '../store/release.ts'
import {does, type Invocation, type ReleaseOptions, refuseValue, requireAskedRelease} from './command.ts'
import {writeNew} from './init.ts'
import {apart, figure, type Text, tableOf} from './table.ts'

export const commands = {
  build: does(({config, options: {compare, knownAt: given, ...asked}, world}: Invocation<Options>) => {
    const request = {...asked, ...(given !== undefined && {knownAt: parseKnownAt(given, world)})}
    return compare ? compareBuilds(config, request, world) : buildRelease(config, request, world)
  }, renderBuild),
  test: does(
    async ({config, world}: Invocation, table?: string) => {
      const {testModels} = await import('../build/cases.ts')
      return testModels(config, table, world)
    },
    renderTested,
    ({failed}) => (failed > 0 ? exitCodeOf('check') : 0),
  ),
  diff: does(diff, renderDiff),
  docs: does(
    async ({config, options: {out}, world}: Invocation<{out?: string}>) => {
      const folder = dataFolderAt(config.dataDir)
      const file = out === undefined ? `${folder.root}/dictionary.html` : requireOutFile(folder, out)
      const {describeTables} = await import('../web/dictionary.ts')
      const {page, tables} = await describeTables(folder, config, world)
      if (out === undefined) createDataFolder(folder)
      writeFileAtomically(file, page)
      return {file, tables}
    },
    ({file}) => `The data dictionary: ${file}`,
  ),
  report: does(
    async (call: Invocation<ReleaseOptions & {out?: string; page?: string}>) => {
      const {page} = call.options
      const folder = dataFolderAt(call.config.dataDir)
      const out = call.options.out === undefined ? undefined : requireOutFile(folder, call.options.out)
      const release = await requireAskedRelease(call)
      const {release_id} = release.manifest
      const name = page === undefined ? '' : `${page.replaceAll(/[^\w-]+/g, '-')}-`
      const file = out ?? `${folder.root}/report-${name}${release_id}.html`
      const {renderReport} = await import('../web/report.ts')
      const {text, problems} = await renderReport(release, call.config, page)
      if (problems.length > 0) throw newError('QUERY_FAILED', problems.join('\n'))
      writeFileAtomically(file, text)
      return {file, release_id}
    },
    ({file}, {page}) => `${page === undefined ? 'The portfolio report' : `Page '${page}'`}: ${file}`,
  ),
  'pages new': does(
    async ({config}: Invocation, name: string) => {
      const {A_NAME, beginPage, listPageDirs, listPages, NAME} = await import('../web/page-files.ts')
      if (!NAME.test(name)) throw refuseValue(name, '<name>', A_NAME)
      const [dir = '', ...others] = listPageDirs(config)
      if (listPages([dir, ...others]).some((page) => page.name === name))
        throw newError('OUT_PLACE', `Page '${name}': there is one already.`)
      if (config.sqlDir === undefined) requireWritable(dataFolderAt(config.dataDir))
      const file = join(dir, `${name}.md`)
      writeNew(file, beginPage(name))
      return {name, file}
    },
    ({name, file}) =>
      `A page to begin with: ${file}\nThe workbench shows it at /pages/${name}; \`loantape pages check\` says what is wrong with it.`,
  ),
  'pages check': does(
    async (call: Invocation, given: string[]) => {
      const release = await requireAskedRelease(call, {})
      const {A_NAME, listPageDirs, listPages, listStrays} = await import('../web/page-files.ts')
      const {renderReport} = await import('../web/report.ts')
      const own = listPages(listPageDirs(call.config)).filter(({isOwn}) => isOwn)
      const pages = []
      for (const name of given.length > 0 ? given : own.map((page) => page.name))
        pages.push({name, problems: (await renderReport(release, call.config, name)).problems})
      for (const file of given.length > 0 ? [] : listStrays(listPageDirs(call.config)))
        pages.push({name: file, problems: [`${file}: no page: expected pages/<name>.md, ${A_NAME}`]})
      const failed = pages.filter(({problems}) => problems.length > 0).length
      return {release_id: release.manifest.release_id, failed, pages}
    },
    ({failed, pages}) => [
      pages.flatMap(({problems}) => problems.map((problem) => `✗ ${problem.trimEnd()}`)),
      `Checked ${quantity(pages.length, 'page')}: ${failed} failed.`,
    ],
    ({failed}) => (failed > 0 ? exitCodeOf('check') : 0),
  ),
}

type Options = BuildRequest & {compare?: boolean}

interface DiffOptions extends ReleaseOptions {
  limit: number
  schema?: boolean
}

export function renderWarnings({results}: Pick<ReleaseManifest['checks'], 'results'>): string[] {
  return results.map(({name, failures, samples, deals, next}) => {
    const counted = `${quantity(failures, 'row')}${deals === undefined ? '' : ` of ${quantity(deals, 'deal')}`}`
    const more = failures > samples.length ? ', …' : '.'
    return `Check '${name}' warned: ${counted}: ${samples.join(', ')}${more}${next === undefined ? '' : ` ${next}`}`
  })
}

export function renderBuild(built: BuildResult & Partial<Compared>): Text {
  const {outcome, release_id, dir, checks, is_current, is_scratch, models, rebuilt} = built
  const passed = `${quantity(checks.passed, 'check')} passed, ${checks.warned} warned.`
  if (is_scratch)
    return [
      `Built into the scratch release: ${passed}`,
      renderWarnings(checks),
      '',
      tableOf(models.map(({name: model, rows, duration_ms: ms}) => ({model, rows, ms}))),
      '',
      `${dir}/portfolio.duckdb, or \`loantape query --release scratch\``,
    ]
  const words = outcome === 'released' ? 'Built' : 'Nothing new:'
  const reused =
    rebuilt == null
      ? 'no earlier build had deals to take over, so no `per:` line was tried'
      : `${(rebuilt * 100).toFixed(1)} % of the deals were rebuilt`
  return [
    `${words} release ${release_id} (${is_current ? 'current' : 'beside the current one'}): ${passed}`,
    renderWarnings(checks),
    dir,
    rebuilt !== undefined && `Every table equals that of a whole build, byte by byte: ${reused}.`,
  ]
}

/** In DuckDB's format, UTC; undefined for an instant still to come, since more may be stored by then. */
function parseKnownAt(text: string, {clock}: World): string | undefined {
  const micros = parseInstant(text)
  if (micros !== null && micros > BigInt(clock.now()) * 1000n) return undefined
  if (micros !== null) return formatInstant(micros).replace('T', ' ').replace('Z', '')
  throw refuseValue(text, '--known-at', 'ISO 8601 with an offset, such as 2026-01-31T23:00:00Z')
}

/** Rows shown of a failed case. */
const MOST_ROWS = 20

function renderTested({folder, passed, failed, duration_ms, cases}: Tested): Text {
  if (cases.length === 0)
    return `No tests in ${folder}. \`loantape init\` lays out an example, docs/analyst-guide.md describes the form.`
  const tables = new Set(cases.map(({table}) => table)).size
  const counts = `${passed} passed${failed > 0 ? `, ${failed} failed` : ''}`
  return apart([
    ...cases.filter((one) => !one.passed).map(renderFailure),
    `${quantity(cases.length, 'case')} of ${quantity(tables, 'table')}: ${counts}, in ${(duration_ms / 1000).toFixed(1)} s.`,
  ])
}

function renderFailure({table, name, file, line, problem, missing, unexpected}: CaseResult): Text {
  const listRows = (row: string, rows: CaseResult['missing']) =>
    rows.map((values) => [row, ...Object.values(values).map(toText)])
  const rows = [...listRows('missing', missing), ...listRows('unexpected', unexpected)].sort((one, other) =>
    one.slice(1).join() < other.slice(1).join() ? -1 : 1,
  )
  const columns = ['row', ...Object.keys(missing[0] ?? unexpected[0] ?? {})].map((name) => ({name}))
  const more = rows.length - MOST_ROWS
  return [
    `✗ ${table}: ${name}\n  ${file}:${line}`,
    problem !== null && `\n${problem}`,
    rows.length > 0 && ['', {columns, rows: rows.slice(0, MOST_ROWS)}],
    more > 0 && `${groupThousands(more)} more; --json has all.`,
  ]
}

/** Quotes an empty text, and one with blanks at its ends. */
function toText(value: string | null): string {
  if (value === null) return 'null'
  return value === '' || value !== value.trim() ? `'${value}'` : value
}

/** Finds a release by id, `current` or date. @throws ConfigError `RELEASE_PARTIAL` if it lacks the deals or their history */
async function findRelease(call: Invocation<DiffOptions>, name = 'current'): Promise<Release> {
  if (name === 'current') return await requireAskedRelease(call, {})
  if (isCalendarDate(name)) return await requireAskedRelease(call, {asOf: name})
  const release = await requireAskedRelease(call, {release: name})
  const held = new Set(release.manifest.tables.map((table) => table.name))
  if (call.options.schema || (held.has('core.deal') && held.has('core.deal_history'))) return release
  throw newError(
    'RELEASE_PARTIAL',
    `Release '${name}': expected one that holds core.deal and core.deal_history, which are compared.`,
    {next: 'Name a whole release, or build `--select +core.deal`.'},
  )
}

const nameOf = ({manifest: {release_id, as_of, known_at}}: Release) => ({release_id, as_of, known_at})

async function diff(call: Invocation<DiffOptions>, first?: string, second?: string) {
  const left = await findRelease(call, first ?? findPreviousRelease(dataFolderAt(call.config.dataDir)))
  const right = await findRelease(call, second)
  const named = {before: nameOf(left), after: nameOf(right)}
  if (!call.options.schema) return {...named, totals: await diffReleases(left, right)}
  return {...named, changes: compareSchemas(await readPublished(left), await readPublished(right))}
}

function renderDiff(found: Awaited<ReturnType<typeof diff>>, {limit}: DiffOptions): Text {
  const {before, after} = found
  const [from, to] = [before, after].map(({release_id, as_of}) => `${release_id} (as of ${as_of})`)
  const heading = from === to ? `${to}, compared with itself` : `From ${from} to ${to}`
  if ('changes' in found) {
    if (found.changes.length === 0) return `${heading}: the same tables and columns.`
    const rows = found.changes.map(({is_breaking: breaks, ...one}) => ({...one, breaks: breaks ? 'yes' : ''}))
    return apart([`${heading}:`, tableOf(rows)])
  }
  const {totals} = found
  if (totals.length === 0) return `${heading}: no total moved.`
  // Often all funded deals have one status, whose totals are then shown only once.
  const sumOf = ({total, before, after, parts}: TotalMovement) =>
    [total.replace('funded_', ''), before, after, ...parts.map((part) => part.deal_id)].join()
  const funded = new Set(totals.filter(({total}) => total.startsWith('funded')).map(sumOf))
  const shown = totals.filter((total) => total.status === null || !funded.has(sumOf(total)))
  const rows = shown.map(({before: then, after: now, movement, parts, ...total}) => {
    const moved = {before: figure(then), after: figure(now), movement: signed(movement)}
    return {total: titleOf(total), ...moved, deals_that_moved_it: parts.length}
  })
  const lists = shown.flatMap((total) => renderParts(total, shown, limit))
  const isCut = shown.some(({parts}) => parts.length > limit)
  const more = isCut ? ['--limit shows more deals of each, --json all.'] : []
  return apart([`${heading}:`, tableOf(rows), ...lists, ...more])
}

const titleOf = ({total, status}: Pick<TotalMovement, 'total' | 'status'>) =>
  status === null ? total.replace('_', ' ') : `${total} of ${status}`

/** For a count, only the movements of deals that the amount's list does not name. */
function renderParts(
  {parts: all, ...of}: TotalMovement,
  others: readonly TotalMovement[],
  limit: number,
): Text[] {
  const amount = others.find(
    ({total, status}) => total === of.total.replace('deals', 'amount') && status === of.status,
  )
  const named = new Set(of.total.endsWith('deals') ? amount?.parts.map((part) => part.deal_id) : [])
  const parts = all.filter((part) => !named.has(part.deal_id))
  if (parts.length === 0) return []
  const rest = parts.slice(limit)
  const rows = parts.slice(0, limit).map((part) => {
    return {deal: part.deal_id, moved_by: describeChange(part), movement: signed(part.movement)}
  })
  if (rest.length > 0) rows.push({deal: `${rest.length} more`, moved_by: '', movement: signed(addUp(rest))})
  return [[titleOf(of), tableOf(rows)]]
}

const signed = (amount: string) => figure(amount.startsWith('-') ? amount : `+${amount}`)

function describeChange({change, before, after, is_corrected}: MovementPart): string {
  const isThere = change !== 'appeared' && change !== 'left' && before && after
  const toWords = (value: unknown) => (change === 'loan_amount' ? groupThousands(String(value)) : value)
  const said = isThere
    ? `${change.replace('_', ' ')} ${toWords(before[change])} → ${toWords(after[change])}`
    : change
  return is_corrected ? `${said}, corrected later` : said
}

/** Amounts or counts, exactly. */
function addUp(parts: readonly MovementPart[]): string {
  const sum = parts.reduce((total, {movement}) => total + centsOf(movement), 0n)
  return parts.some(({movement}) => movement.includes('.')) ? formatCents(sum) : String(sum)
}
