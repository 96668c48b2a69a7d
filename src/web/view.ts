import type {Html} from '../page/html.ts'
import type {Release} from '../release/manifest.ts'
import type {ReleaseQueries} from '../release-row.ts'
import type {Filter} from './filter.ts'
import type {Reader} from './reader.ts'

/** What a page is made from. */
export interface View {
  release: Release
  /** Of the deals that the filter means. */
  tables: ReleaseQueries
  /** Of all deals. */
  whole: ReleaseQueries
  filter: Filter
  /** Whether who asks can read a table. */
  mayRead(name: string): boolean
  /** All that the address asks for. */
  query: URLSearchParams
}

/** The same, where people ask for what they like. */
export interface AskingView extends View {
  reader: Reader
  /** Answers people's own questions, each in its turn. */
  people: Reader
}

/** A page, without what all pages have. */
export interface Page {
  title: string
  body: Html
}
