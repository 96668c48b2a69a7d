import {join} from 'node:path'
import {z} from 'zod'
import {businessDateOf} from '../clock.ts'
import type {Config} from '../config.ts'
import {newError} from '../errors.ts'
import {discardBuild} from '../release/build-folder.ts'
import {forgetLastBuild, noteWhole, readLastBuild} from '../release/last-build.ts'
import {type Release, requireRelease} from '../release/manifest.ts'
import type {ReleaseTable} from '../release-manifest.ts'
import type {World} from '../types.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import {openDatabase, quoteLiteral} from '../warehouse/database.ts'
import {type BuildResult, buildRelease} from './build.ts'
import {buildTables} from './build-tables.ts'
import {type BuildRequest, planBuild, prepareBuild} from './prepare-build.ts'

/** A build that goes on from others is compared with a whole one after so many milliseconds: a week. */
const WHOLE_AFTER_MS = 7 * 86_400_000

/** As {@link verifyBuild}, of the current release, where builds have gone on from others for a week. */
export async function verifyBuildWhereDue(config: Config, world: World): Promise<void> {
  const last = readLastBuild(dataFolderAt(config.dataDir))
  if (!last || last.rebuilt === 0 || world.realClock.now() - Date.parse(last.whole_at) < WHOLE_AFTER_MS)
    return
  await verifyBuild(config, {}, world)
  world.log.info({release_id: last.release_id}, 'release compared with a whole build: the same')
}

/**
 * Builds a release, unless it is there, and then all of it again from nothing, and compares every published table byte by byte.
 *
 * @throws CheckError `BUILD_DIFFERS` naming table and row; the next build is whole
 */
export async function verifyBuild(config: Config, request: BuildRequest, world: World): Promise<BuildResult> {
  const folder = dataFolderAt(config.dataDir)
  const result = await buildRelease(config, request, world)
  const release = requireRelease(folder, result.release_id)
  const {as_of: asOf, known_at: knownAt} = release.manifest
  const moment = {asOf, knownAt: knownAt.replace('T', ' ').replace('Z', '')}
  const today = businessDateOf(world.clock.now(), config)
  const {build} = await prepareBuild(folder, config, moment, {today, isAgain: true})
  if (!build) throw new Error('nothing was prepared')
  try {
    const {tables} = await buildTables(folder, await planBuild(folder, build, world), world)
    for (const table of tables) {
      const built = release.manifest.tables.find(({name}) => name === table.name)
      if (built?.sha256 === table.sha256) continue
      forgetLastBuild(folder)
      throw newError(
        'BUILD_DIFFERS',
        `Table '${table.name}' of release ${result.release_id} is not that of a whole build: ${await findDifference(release, build.dir, table)}.`,
      )
    }
  } finally {
    discardBuild(build.dir)
  }
  noteWhole(folder, result.release_id, new Date(world.realClock.now()))
  return result
}

/** A row that only one of two files has, in words. */
async function findDifference(release: Release, dir: string, {file}: ReleaseTable): Promise<string> {
  await using db = await openDatabase()
  const rowsOf = (folder: string) => `from read_parquet(${quoteLiteral(join(folder, file))})`
  const find = (one: string, other: string) =>
    db.first(
      z.object({row: z.string()}),
      `select cast(to_json(t) as varchar) as row from ((${one}) except all (${other})) as t order by row limit 1`,
    )
  const [built, whole] = [rowsOf(release.dir), rowsOf(dir)]
  const more = await find(built, whole)
  if (more) return `it has the row ${more.row}, which a whole build has not`
  const less = await find(whole, built)
  return less ? `it lacks the row ${less.row}` : 'it has the same rows in another order'
}
