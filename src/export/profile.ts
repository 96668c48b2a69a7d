import type {ReleaseManifest} from '../types.ts'
import type {Database} from '../warehouse/database.ts'

/** The release an export reads, its tables attached as `release`. */
export interface ExportSource {
  dir: string
  database: string
  manifest: ReleaseManifest
}

/** Writes one table into a file and says the file's name. */
export type TableWriter = (db: Database, source: ExportSource, table: string, dir: string) => Promise<string>
