import {newError} from '../core/errors.ts'
import {borrowerStream} from './borrower.ts'
import {dealStream} from './deal.ts'
import {documentStream} from './document.ts'
import type {Stream} from './stream.ts'

/** Parents before their children. */
export const STREAMS: readonly Stream[] = [dealStream, borrowerStream, documentStream]

/** Parses `LOANTAPE_STREAMS`, which must name `deals`. @throws ConfigError `CONFIG_INVALID` */
export function parseChildStreams(text: string): Stream[] {
  const names = text
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '')
  const unknown = names.find((name) => STREAMS.every(({plural}) => plural !== name))
  if (unknown === undefined && names.includes(dealStream.plural)) {
    return STREAMS.filter(({parent, plural}) => parent && names.includes(plural))
  }
  const children = STREAMS.flatMap(({parent, plural}) => (parent ? [plural] : [])).join(', ')
  throw newError(
    'CONFIG_INVALID',
    `Value '${unknown ?? text}' in LOANTAPE_STREAMS: expected deals, and any of ${children}, separated by commas.`,
  )
}

export const needHashKey = (streams: readonly Stream[]): boolean =>
  streams.some(({privacy}) => privacy && privacy.hashed.length > 0)
