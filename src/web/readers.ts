import type {Config} from '../config.ts'
import type {Release} from '../release/manifest.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import type {Filter} from './filter.ts'
import {findRelease} from './find-release.ts'
import {createReader, type Limits, type Reader} from './reader.ts'

/** Pages read what loantape asks; people's own questions go to a process of their own, which may take its time. */
const IDLE_MS = 300_000
const PAGE_LIMITS = {memoryMb: 1024, timeoutMs: 15_000, idleMs: IDLE_MS}
const PEOPLE_LIMITS = {memoryMb: 512, timeoutMs: 30_000, idleMs: IDLE_MS}

/** A worksheet of a million rows takes many minutes, and beside it others download. */
const DOWNLOAD_LIMITS = {
  memoryMb: 512,
  timeoutMs: 3_600_000,
  idleMs: IDLE_MS,
  processes: 2,
  // More than a million rows of any table, and no more than a small disk has.
  fileBytes: 2e9,
  folderBytes: 4e9,
}

/** The readers of a release. */
export interface Readers extends Disposable {
  release: Release
  pages: Reader
  people: Reader
  downloads: Reader
}

/** Releases that are read at once: the current one, and those that somebody looks back at. */
const OPEN_RELEASES = 3

/** Creates what finds the readers of a release, and opens and closes them; disposing it ends their processes. */
export function createReaders(folder: DataFolder, config: Config) {
  const opened = new Map<string, Readers>()
  return {
    /** Those of the release that an address asks for; what was not asked for longest is closed. */
    find(filter: Filter): Readers | undefined {
      const release = findRelease(folder, filter)
      if (!release) return undefined
      const id = release.manifest.release_id
      const readers = opened.get(id) ?? openReaders(release, config)
      opened.delete(id)
      opened.set(id, readers)
      for (const [oldest, old] of [...opened].slice(0, -OPEN_RELEASES)) {
        old[Symbol.dispose]()
        opened.delete(oldest)
      }
      return readers
    },
    [Symbol.dispose]() {
      for (const readers of opened.values()) readers[Symbol.dispose]()
    },
  }
}

function openReaders(release: Release, config: Config): Readers {
  const create = (limits: Limits) =>
    createReader(release.dir, {
      ...limits,
      memoryMb: Math.min(limits.memoryMb, config.memoryMb ?? limits.memoryMb),
    })
  const timeoutMs = Math.min(PEOPLE_LIMITS.timeoutMs, config.modelTimeoutSeconds * 1000)
  const readers = {
    pages: create(PAGE_LIMITS),
    people: create({...PEOPLE_LIMITS, timeoutMs}),
    downloads: create(DOWNLOAD_LIMITS),
  }
  return {
    release,
    ...readers,
    [Symbol.dispose]() {
      for (const reader of Object.values(readers)) reader[Symbol.dispose]()
    },
  }
}
