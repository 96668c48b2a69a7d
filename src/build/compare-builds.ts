import {rmSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {DAY_MS} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import type {Model, Moment, World} from '../core/types.ts'
import {type DataFolder, dataFolderAt} from '../store/data-folder.ts'
import {openDatabase, quoteLiteral} from '../store/database.ts'
import {momentOf} from '../store/moment.ts'
import {requireRelease} from '../store/release.ts'
import {openHistory} from '../store/warehouse.ts'
import {type BuildRequest, buildRelease, buildTables, prepareBuild} from './build.ts'
import {type Base, noteWhole, readLastBuild} from './last-build.ts'

export type Compared = Awaited<ReturnType<typeof compareBuilds>>

/** Compares the current release, if no build was whole in the last week. */
export async function compareBuildsWhereDue(config: Config, world: World): Promise<void> {
  const last = readLastBuild(dataFolderAt(config.dataDir))
  if (!last || last.rebuilt === 0 || world.realClock.now() - Date.parse(last.whole_at) < 7 * DAY_MS) return
  await compareBuilds(config, {}, world)
  world.log.info({release_id: last.release_id}, 'release compared with a whole build: identical')
}

/**
 * Builds a release if it does not exist, builds it whole beside it, and compares every published table byte by byte, and the
 * findings of the checks. A release that was itself built whole is also built starting from up to seven earlier walks.
 * @throws UnexpectedError `BUILD_DIFFERS` naming table, model and rows; the next build is then whole
 */
export async function compareBuilds(config: Config, request: BuildRequest, world: World) {
  const folder = dataFolderAt(config.dataDir)
  const result = await buildRelease(config, request, world)
  const release = requireRelease(folder, result.release_id)
  const moment = momentOf(release.manifest)
  using whole = await buildAside(config, {name: 'whole', moment}, world)
  await requireSame(folder, release, whole)
  const last = readLastBuild(folder)
  // A build that rebuilt all deals or none proves nothing about `per:`.
  const shareOf = (share = 0) => (share > 0 && share < 1 ? share : null)
  let rebuilt = last?.release_id === result.release_id ? shareOf(last.rebuilt) : null
  for (const earlier of rebuilt === null ? await listEarlier(folder, moment, world) : []) {
    using before = await buildAside(config, {name: 'earlier', moment: earlier}, world)
    using onward = await buildAside(config, {name: 'onward', moment, before}, world)
    await requireSame(folder, onward, whole)
    rebuilt = shareOf(onward.last.rebuilt)
    if (rebuilt !== null) break
  }
  noteWhole(folder, result.release_id, new Date(world.realClock.now()))
  /** `rebuilt`: the share of deals that the compared build rebuilt; null if that was none or all of them. */
  return {...result, rebuilt}
}

/** Builds in a folder of its own, whole or starting from another build; disposing the result removes the folder. */
async function buildAside(
  config: Config,
  {name, moment, before}: {name: string; moment: Moment; before?: Base},
  world: World,
) {
  const how = {...config, build: before ? ('incremental' as const) : ('whole' as const)}
  const {build} = await prepareBuild(how, moment, world, {aside: name, from: before})
  if (!build) throw new Error('nothing was prepared')
  using building = new DisposableStack()
  const {dir} = building.use(build.place)
  const {plan, manifest, next} = await buildTables(build, world)
  building.move()
  const remove = build.place[Symbol.dispose]
  return {dir, last: next, manifest: {...manifest, files: []}, models: plan.models, [Symbol.dispose]: remove}
}

/** The moments after up to seven walks of the deals before a moment, each with its lists, earliest first. */
async function listEarlier(folder: DataFolder, {asOf, knownAt}: Moment, world: World): Promise<Moment[]> {
  await using db = await openHistory(folder, world)
  const nights = await db.all(
    z.object({asOf: z.string(), knownAt: z.string()}),
    `select max(business_date) as "asOf", strftime(max(recorded_at), '%Y-%m-%d %H:%M:%S.%f') as "knownAt"
     from (
       select *, count(*) filter (stream = 'deal') over (order by recorded_at) as night
       from history.raw.walk
       where state = 'applied' and business_date <= cast($1 as date) and recorded_at < cast($2 as timestamp)
     )
     group by night
     order by night desc limit 7`,
    [asOf, knownAt],
  )
  return nights.toReversed()
}

async function requireSame(
  folder: DataFolder,
  built: Pick<Base, 'dir' | 'manifest'>,
  whole: Pick<Base, 'dir' | 'manifest'> & {models: readonly Model[]},
): Promise<void> {
  const refuse = (problem: string) => {
    rmSync(folder.lastBuild, {force: true})
    return newError('BUILD_DIFFERS', `${problem}.`)
  }
  for (const {name, file, sha256} of whole.manifest.tables) {
    if (built.manifest.tables.find((table) => table.name === name)?.sha256 === sha256) continue
    const difference = await describeDifference(join(built.dir, file), join(whole.dir, file))
    throw refuse(
      `Table '${name}' (${whole.models.find((model) => model.name === name)?.file}) of release ${whole.manifest.release_id} differs from that of a whole build: ${difference}`,
    )
  }
  const found = [built, whole].map(({manifest}) =>
    manifest.checks.results.map(
      ({name, failures, samples}) => `'${name}' ${failures}: ${samples.join(', ')}`,
    ),
  )
  const other = found.flat().find((result) => !found.every((results) => results.includes(result)))
  if (other !== undefined)
    throw refuse(
      `Findings of the checks of release ${whole.manifest.release_id} differ from those of a whole build: ${other}`,
    )
}

/** Up to three rows that only one of two files has, for each. */
async function describeDifference(built: string, whole: string): Promise<string> {
  await using db = await openDatabase()
  const rowsOnlyIn = async (one: string, other: string) => {
    const [these, those] = [one, other].map((path) => `from read_parquet(${quoteLiteral(path)})`)
    const rows = await db.column(
      z.string(),
      `select cast(to_json(t) as varchar) as row from ((${these}) except all (${those})) as t order by row limit 3`,
    )
    return rows.join(', ')
  }
  const [more, less] = [await rowsOnlyIn(built, whole), await rowsOnlyIn(whole, built)]
  const parts = [more && `it has the rows ${more}`, less && `it lacks the rows ${less}`].filter(Boolean)
  return parts.join('; ') || 'it has the same rows in another order'
}
