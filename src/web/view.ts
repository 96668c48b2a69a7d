import type {Html} from '../page/html.ts'
import type {Release} from '../release/manifest.ts'
import type {Queries} from '../warehouse/database.ts'
import type {Filter} from './filter.ts'
import type {Reader} from './reader.ts'

/** What a page is made from. */
export interface View {
  release: Release
  /** Reads the release; `tables` are those of the deals that the filter means. */
  reader: Reader
  tables: Queries
  filter: Filter
  /** All that the address asks for. */
  query: URLSearchParams
}

/** A page, without what all pages have. */
export interface Page {
  title: string
  body: Html
}
