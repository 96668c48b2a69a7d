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

/** The two readers of a release. */
export interface Readers extends Disposable {
  release: Release
  pages: Reader
  people: Reader
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
  const limit = ({memoryMb, timeoutMs, idleMs}: Limits): Limits => ({
    memoryMb: Math.min(memoryMb, config.memoryMb ?? memoryMb),
    timeoutMs: Math.min(timeoutMs, config.modelTimeoutSeconds * 1000),
    idleMs,
  })
  const pages = createReader(release.dir, limit(PAGE_LIMITS))
  const people = createReader(release.dir, limit(PEOPLE_LIMITS))
  return {
    release,
    pages,
    people,
    [Symbol.dispose]() {
      pages[Symbol.dispose]()
      people[Symbol.dispose]()
    },
  }
}
