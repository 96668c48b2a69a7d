import {existsSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import type {SourceBridge} from '../types.ts'

/** One file of a batch. */
export interface BatchFile {
  name: string
  bytes: number
  sha256: string
  rows: number
  columns: string[]
  /** Sum of `loan_amount` or `amount`, where the table has it and its rows are deals: the control total. */
  sum_amount: string | null
}

/** What `manifest.json` of a batch says; it is written last, so a batch without it is not finished. */
export interface BatchManifest {
  schema_version: 1
  generator: string
  batch_id: string
  profile: string
  release_id: string
  as_of: string
  known_at: string
  currency: 'USD'
  time_zone: string
  files: BatchFile[]
  source: SourceBridge
}

const writtenManifest = z.object({batch_id: z.string(), files: z.array(z.object({name: z.string()}))})

/** Whether a folder holds a finished batch. */
export function isFinishedBatch(dir: string): boolean {
  const path = join(dir, 'manifest.json')
  return existsSync(path) && writtenManifest.safeParse(JSON.parse(readFileSync(path, 'utf8'))).success
}
