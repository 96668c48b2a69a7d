import type {Html} from '../page/html.ts'
import type {Release} from '../release/manifest.ts'
import {readReleaseModels} from '../release/models-file.ts'
import type {Queries} from '../warehouse/database.ts'
import type {Filter} from './filter.ts'
import type {Reader} from './reader.ts'

/** What a page is made from. */
export interface View {
  release: Release
  /** Of the deals that the filter means. */
  tables: Queries
  /** Of all deals. */
  whole: Queries
  filter: Filter
  /** All that the address asks for. */
  query: URLSearchParams
}

/** The same, where people ask for what they like. */
export interface AskingView extends View {
  reader: Reader
}

/** A page, without what all pages have. */
export interface Page {
  title: string
  body: Html
}

/** What pages read, whatever they are about. */
const NEEDED = [
  'mart.portfolio_summary',
  'mart.portfolio_breakdown',
  'mart.position_daily',
  'mart.portfolio_monthly',
  'mart.pipeline_aging',
  'mart.data_quality',
  'work.deal_standing',
  'work.position_span',
]

/** The table that pages read and a release lacks: an earlier version built it, or it is one of some tables only. */
export function findLacking({dir}: Release): string | undefined {
  const names = new Set(readReleaseModels(dir)?.map(({name}) => name))
  return NEEDED.find((name) => !names.has(name))
}
