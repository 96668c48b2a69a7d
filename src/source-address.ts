/** The address of a source in the two parts it has for us. */
export interface SourceAddress {
  /** Names the source wherever it is stored, compared or printed. */
  name: string
  /** What requests carry with it, `?key=…`, or empty: it may be a secret. */
  query: string
}

/** Splits an address as it is configured; user, password and fragment, which no request carries, are dropped. */
export function splitSourceAddress(url: string): SourceAddress {
  const [, name = '', query = ''] = /^([^?#]*)(\?[^#]*)?/.exec(url) ?? []
  return {
    name: name.replace(/^(\w+:\/\/)[^/]*@/, '$1').replace(/\/+$/, ''),
    query: query === '?' ? '' : query,
  }
}
