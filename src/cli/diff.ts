import {isCalendarDate} from '../clock.ts'
import type {Config} from '../config.ts'
import {newError} from '../errors.ts'
import {centsOf, formatCents, groupThousands} from '../money.ts'
import {requireBuilt} from '../pipeline/build.ts'
import {diffReleases, type MovementPart, type TotalMovement} from '../release/compare-releases.ts'
import {type Release, requireRelease} from '../release/manifest.ts'
import type {ReleaseManifest} from '../release-manifest.ts'
import type {World} from '../types.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import type {Call, CliCommand} from './command.ts'
import {parseCount} from './options.ts'
import {renderTable, signed} from './table.ts'

/** What `diff --json` prints. */
interface Diff {
  before: Pick<ReleaseManifest, 'release_id' | 'as_of' | 'known_at'>
  after: Pick<ReleaseManifest, 'release_id' | 'as_of' | 'known_at'>
  totals: TotalMovement[]
}

/** `loantape diff`. */
export default function addDiff(command: CliCommand): void {
  command
    .description('which deals and fields moved the totals from one release to another')
    .example('diff 2026-06-29 2026-06-30')
    .argument('<before>', 'a release id, a date YYYY-MM-DD, or `current`')
    .argument('<after>', 'another')
    .option(
      '--limit <count>',
      'deals shown of each total; --json has all',
      parseCount('--limit', 1_000_000),
      20,
    )
    .does(async ({config, world}: Call<{limit: number}>, before: string, after: string): Promise<Diff> => {
      const left = await findRelease(config, before, world)
      const right = await findRelease(config, after, world)
      return {
        before: nameRelease(left),
        after: nameRelease(right),
        totals: await diffReleases(left, right),
      }
    }, renderDiff)
}

/** A release by id, `current`, or the date it stands for; one of a past date is built when it is not there. */
async function findRelease(config: Config, name: string, world: World): Promise<Release> {
  const folder = dataFolderAt(config.dataDir)
  if (name === 'current') return requireRelease(folder)
  if (!isCalendarDate(name)) return requireDeals(requireRelease(folder, name), name)
  return await requireBuilt(config, {asOf: name}, world)
}

/** The release of a selection may hold other tables only. */
function requireDeals(release: Release, name: string): Release {
  if (release.manifest.tables.some((table) => table.name === 'core.deal')) return release
  throw newError(
    'RELEASE_PARTIAL',
    `Release '${name}' on the command line: expected one that holds core.deal, whose deals are compared.`,
    {next: 'Name a whole release, or build `--select core.deal`.'},
  )
}

function nameRelease({manifest: {release_id, as_of, known_at}}: Release): Diff['before'] {
  return {release_id, as_of, known_at}
}

function renderDiff({before, after, totals}: Diff, {limit}: {limit: number}): string {
  const heading = `From ${before.release_id} (as of ${before.as_of}) to ${after.release_id} (as of ${after.as_of})`
  if (totals.length === 0) return `${heading}: no total moved.`
  const overview = renderTable(
    ['total', {number: 'before'}, {number: 'after'}, {number: 'movement'}, {number: 'deals'}],
    totals.map((total) => [
      titleOf(total),
      groupThousands(total.before),
      groupThousands(total.after),
      signed(total.movement),
      String(total.parts.length),
    ]),
  )
  return [`${heading}:`, '', overview, ...totals.map((total) => renderTotal(total, limit))].join('\n')
}

function renderTotal(total: TotalMovement, limit: number): string {
  const rest = total.parts.slice(limit)
  const rows = total.parts
    .slice(0, limit)
    .map((part) => [part.deal_id, describeChange(part), signed(part.movement)])
  if (rest.length > 0) rows.push([`${rest.length} more`, '', signed(addUp(rest))])
  const table = renderTable(
    [titleOf(total), 'moved by', {number: 'movement'}],
    [...rows, ['', 'in all', signed(total.movement)]],
  )
  return `\n${table}`
}

const titleOf = ({total, status}: TotalMovement) =>
  status === null ? total.replace('_', ' ') : `status ${status}: ${total}`

function describeChange({change, before, after}: MovementPart): string {
  if (change === 'appeared' || change === 'left' || before === null || after === null) return change
  return `${change.replace('_', ' ')} ${before[change]} → ${after[change]}`
}

/** Exact, in cents or counts as the parts are. */
function addUp(parts: readonly MovementPart[]): string {
  const sum = parts.reduce((total, {movement}) => total + centsOf(movement), 0n)
  return parts.some(({movement}) => movement.includes('.')) ? formatCents(sum) : String(sum)
}
