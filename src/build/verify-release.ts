import {existsSync, realpathSync} from 'node:fs'
import {basename, join} from 'node:path'
import {isDeepStrictEqual} from 'node:util'
import {z} from 'zod'
import {type Fault, findMachineFault, messageOf} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {listSome} from '../core/text.ts'
import {type Database, quoteLiteral} from '../store/database.ts'
import {findFileFault} from '../store/files.ts'
import {readBridge} from '../store/moment.ts'
import {openRelease, type Release, type ReleaseTable} from '../store/release.ts'
import {countRows, digestRows} from '../store/sql.ts'

/** What to do about a release that differs from its manifest. */
export const RELEASE_NEXT = 'Remove the release folder and run `loantape build`, which makes it again.'

/** The files of a release that are missing or have a wrong sha256, and its databases if they do not open. */
export async function verifyReleaseFiles(release: Release): Promise<Fault[]> {
  const files = release.manifest.tables.flatMap((table) => verifyFile(release, table))
  return [...files, ...(await withDatabase(release, () => undefined))]
}

/** Works with the opened databases of a release, or says that they do not open. */
async function withDatabase(release: Release, work: (db: Database) => unknown): Promise<Fault[]> {
  let db: Database
  try {
    db = await openRelease(release)
  } catch (error) {
    // What is wrong may be the machine, or the release removed meanwhile.
    const fault = findMachineFault(error)
    if (fault || !existsSync(release.dir)) throw fault ?? error
    const words = messageOf(error).split('\n')[0]
    const problem = `The databases of release ${release.manifest.release_id} do not open: ${words}.`
    return [{problem, next: RELEASE_NEXT}]
  }
  await using _open = db
  await work(db)
  return []
}

function verifyFile({dir, manifest}: Release, {file, sha256}: ReleaseTable): Fault[] {
  const fault = findFileFault(join(dir, file), sha256)
  const problem = `File '${file}' of release ${manifest.release_id} ${fault}.`
  return fault ? [{problem, next: RELEASE_NEXT}] : []
}

/**
 * Verifies the files of a release, that its tables hold their rows, and that its manifest has its name, its date, and the last walk
 * of `mart.run`.
 */
export async function verifyRelease(release: Release): Promise<Fault[]> {
  const {dir, manifest} = release
  const name = basename(realpathSync(dir))
  const faults: Fault[] = []
  const note = (problem: string, next = RELEASE_NEXT) => faults.push({problem, next})
  if (name === 'current')
    note(
      `'current' is a folder: expected a link to one of releases/, as a copy keeps it with 'cp -a'.`,
      'Remove it and run `loantape build`, which makes it again.',
    )
  else if (manifest.release_id !== name || name.slice(0, 10) !== manifest.as_of)
    note(`The manifest of release ${name} names ${manifest.release_id} as of ${manifest.as_of}.`)
  const ofFiles = manifest.tables.map((table) => ({table, faults: verifyFile(release, table)}))
  const unopened = await withDatabase(release, async (db) => {
    for (const {table, faults} of ofFiles) {
      const found = await findFault(db, release, {...table, isWhole: faults.length === 0}).catch(
        (error: unknown) => `cannot be read (${messageOf(error).split('\n')[0]})`,
      )
      if (found) note(`Table '${table.name}' of release ${manifest.release_id} ${found}.`)
    }
  })
  return [...ofFiles.flatMap((one) => one.faults), ...faults, ...unopened]
}

/** Enough rows for the ids that a finding names: a row may differ on both sides. */
const FOUND = 7

/** How a table differs, in words; it is compared with its file only if that is whole. */
async function findFault(
  db: Database,
  {dir, manifest: {source}}: Release,
  {name, file, rows: listed, isWhole}: ReleaseTable & {isWhole: boolean},
): Promise<string | undefined> {
  const [table, stored] = [`from release.${name}`, `from read_parquet(${quoteLiteral(join(dir, file))})`]
  const digest = await digestRows(db, table)
  if (isWhole && (await digestRows(db, stored)) !== digest) {
    const differing = `(((${table}) except all (${stored})) union all ((${stored}) except all (${table})))`
    const rows = await db.all(
      z.record(z.string(), z.unknown()),
      `from ${differing} order by all limit ${FOUND}`,
    )
    const ids = [...new Set(rows.map((row) => String(Object.values(row)[0])))]
    return `differs from ${file} by ${quantity(await countRows(db, differing), 'row')}: ${listSome(ids) || 'other types'}`
  }
  const [count] = digest.split(' ')
  if (count !== `${listed}`) return `has ${count} rows: its manifest says ${listed}`
  if (name !== 'mart.run') return undefined
  const walk = await readBridge(db, `release.mart.run where walk_id = ${quoteLiteral(source.walk_id)}`)
  return isDeepStrictEqual(walk, source) ? undefined : 'does not hold the last walk as the manifest has it'
}
