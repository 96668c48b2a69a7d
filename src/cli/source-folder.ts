import {existsSync, readdirSync, realpathSync, statSync} from 'node:fs'
import {basename, dirname, join} from 'node:path'
import {codeOf, newError} from '../errors.ts'
import {SOURCE_NAME} from '../settings.ts'

/** The settings of a working folder; in that of a fleet, those that all its sources share. */
export const ENV_FILE = '.env'

const SOURCES = 'sources'

/** A working folder of one lender beside others: `<fleet>/sources/<name>`. */
export interface SourceFolder {
  name: string
  dir: string
  fleetDir: string
}

/** The source whose working folder this is; undefined where it is no fleet's, which has a file of settings, be it empty. */
export function findSource(dir: string): SourceFolder | undefined {
  const [sources, name] = [dirname(dir), basename(dir)]
  const fleetDir = dirname(sources)
  if (basename(sources) !== SOURCES || !SOURCE_NAME.test(name)) return undefined
  return existsSync(join(fleetDir, ENV_FILE)) ? {name, dir, fleetDir} : undefined
}

/**
 * The names of a fleet's sources, sorted, those that are no name of a source among them; what begins with a dot is none.
 *
 * @throws ConfigError `FLEET_NONE`
 */
export function listSources(fleetDir: string): string[] {
  if (!existsSync(join(fleetDir, ENV_FILE))) {
    throw newError('FLEET_NONE', `No fleet in '${fleetDir}': expected a file '${ENV_FILE}' there.`)
  }
  const sources = join(fleetDir, SOURCES)
  try {
    const entries = readdirSync(sources, {withFileTypes: true})
    // A link is refused by its name, not left out without a word.
    const folders = entries.filter((entry) => entry.isDirectory() || entry.isSymbolicLink())
    return folders
      .map(({name}) => name)
      .filter((name) => !name.startsWith('.'))
      .sort()
  } catch (cause) {
    throw newError(
      'FLEET_NONE',
      `No fleet in '${fleetDir}': folder '${sources}' cannot be read (${codeOf(cause)}).`,
      {
        cause,
      },
    )
  }
}

/**
 * The folder of one source of a fleet.
 *
 * @throws ConfigError `FLEET_SOURCE_NAME`, `FLEET_SOURCE_FOLDER`
 */
export function requireSourceFolder(fleetDir: string, name: string): SourceFolder {
  const dir = join(fleetDir, SOURCES, name)
  if (!SOURCE_NAME.test(name)) {
    throw newError(
      'FLEET_SOURCE_NAME',
      `Folder '${dir}': expected a name of lower-case letters, digits and _, a letter first, 40 at most.`,
    )
  }
  try {
    // A process in a folder that is reached by a link would not know that it is a source, and go without its settings.
    const real = findSource(realpathSync(dir))
    const isReal = real?.name === name && real.fleetDir === realpathSync(fleetDir)
    if (isReal && statSync(dir).isDirectory()) return {name, dir, fleetDir}
  } catch (cause) {
    throw newError('FLEET_SOURCE_FOLDER', `Folder '${dir}' cannot be read (${codeOf(cause)}).`, {cause})
  }
  throw newError('FLEET_SOURCE_FOLDER', `'${dir}': expected a folder, and no link to one.`)
}
