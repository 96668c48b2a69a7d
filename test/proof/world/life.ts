import {isDeepStrictEqual} from 'node:util'
import {businessDate, type Class, type Reference} from './story.ts'
import {carry, type Facts, type Shown, type Sighting} from './truth.ts'

/** A deal's content from one change to the next. */
export interface Version {
  number: number
  change: 'created' | 'updated' | 'vanished' | 'restored'
  from: number
  to: number | null
  on: string
  address: string | null
  amount: bigint
  value: bigint | null
  program: string | null
  status: string
  statusClass: Class
}

/** An uninterrupted time in one status. */
export interface Spell {
  status: string
  statusClass: Class
  at: number
  on: string
  /** The last business date on which the deal was known not to be in it; null if unknown. */
  after: string | null
}

export const ENDINGS = ['paid_off', 'sold', 'refinanced', 'foreclosed', 'charged_off', 'ended_other'] as const

/** The terms that move the funded book after its opening. */
export const TERMS = [
  ...([
    'found',
    'originated',
    'refunded',
    'restored',
    'increased',
    'decreased',
    'reversed',
    'vanished',
  ] as const),
  ...ENDINGS,
] as const
type Term = (typeof TERMS)[number]

export interface Movement {
  deal: string
  month: string
  on: string
  term: 'opening' | Term
  /** The ending that this movement is or takes back. */
  ending: string | undefined
  amount: bigint
  program: string | null
  version: Version
}

export type Life = ReturnType<typeof listLives>[number]

type Content = Omit<Version, 'number' | 'change' | 'from' | 'to' | 'on' | 'statusClass'>

function dayOf(created: string): string {
  return /^\d{4}-\d\d-\d\d$/.test(created) ? created : businessDate(Date.parse(created))
}

function listVersions(sightings: readonly Sighting[], reference: Reference): Version[] {
  const versions: Version[] = []
  let content: Content | undefined
  for (const {kind, at, on, fields} of sightings) {
    const next = fields ? read(fields, content) : content
    if (kind === 'missing' || !next) continue
    const isGone = versions.at(-1)?.change === 'vanished'
    if (kind === 'vanished' ? isGone : content && !isGone && isDeepStrictEqual(next, content)) continue
    const change = kind === 'vanished' ? kind : !content ? 'created' : isGone ? 'restored' : 'updated'
    const before = versions.at(-1)
    if (before) before.to = at
    const statusClass = reference.statuses[next.status]?.[0] ?? 'unclassified'
    versions.push({number: versions.length + 1, change, from: at, to: null, on, ...next, statusClass})
    content = next
  }
  return versions
}

function read(fields: Shown, before: Content | undefined): Content {
  const {statusText: _, createdAt: __, ...content} = carry(fields, before)
  return content
}

function listSpells(id: string, sightings: readonly Sighting[], truth: Facts): Spell[] {
  const spells: Spell[] = []
  let seen: Sighting | undefined
  for (const sighting of sightings) {
    if (sighting.kind !== 'seen') continue
    const {status} = sighting.fields!
    if (spells.at(-1)?.status !== status)
      spells.push({
        status,
        statusClass: truth.reference.statuses[status]?.[0] ?? 'unclassified',
        at: sighting.at,
        on: sighting.on,
        after: seen ? seen.on : knownBefore(id, sighting, truth),
      })
    seen = sighting
  }
  return spells
}

/** Returns the last date before a deal's first sighting on which it was known not to exist; null if unknown. */
function knownBefore(id: string, sighting: Sighting, truth: Facts): string | null {
  const unread = truth.quarantine.find(
    (record) => record.id === id && record.at < sighting.at && !record.isOfRefused,
  )
  const first = Math.min(unread?.walk ?? sighting.walk, sighting.walk)
  return truth.walks[first - 2]?.on ?? null
}

function listMovements(id: string, versions: readonly Version[], truth: Facts): Movement[] {
  const movements: Movement[] = []
  let before: Version | undefined
  let wasEverFunded = false
  /** The version with which it last left the book, and its ending, if any; undefined while it is in the book. */
  let off: {held: Version; ending?: string} | undefined
  const firstOn = truth.walks[0]?.on ?? ''
  const wasThere = truth.quarantine.some(
    (record) => record.id === id && record.walk === 1 && !record.isOfRefused,
  )
  for (const version of versions) {
    const {on, amount, program} = version
    const isFunded = isInBook(version)
    const wasFunded = before !== undefined && isInBook(before)
    const add = (term: Movement['term'], moved: bigint, ending?: string) =>
      movements.push({deal: id, month: on.slice(0, 7), on, term, ending, amount: moved, program, version})
    const change = (from: bigint) => {
      if (amount > from) add('increased', amount - from)
      if (amount < from) add('decreased', from - amount)
    }
    if (isFunded && !wasFunded) {
      if (!before && on === firstOn && truth.deals.get(id)?.[0]?.walk === 1) add('opening', amount)
      else if (!before && wasThere) add('found', amount)
      else if (before?.change === 'vanished' && before.statusClass === 'funded') add('restored', amount)
      else if (off?.ending) {
        add('refunded', off.held.amount, off.ending)
        change(off.held.amount)
      } else add(wasEverFunded ? 'refunded' : 'originated', amount)
      off = undefined
    } else if (version.change !== 'vanished' && version.statusClass === 'ended_funded') {
      const ending = endingOf(version, truth)
      const held = wasFunded ? before : off?.held
      // After a foreclosure, a sale is of the property, not of the loan.
      const isOfProperty = off?.ending === 'foreclosed' && ending === 'sold'
      if (held && off?.ending !== ending && !isOfProperty) {
        if (!wasFunded)
          add(before?.statusClass === 'funded' ? 'restored' : 'refunded', held.amount, off?.ending)
        add(ending, held.amount, ending)
        off = {held, ending}
      }
    } else if (wasFunded && !isFunded) {
      add(version.change === 'vanished' ? 'vanished' : 'reversed', before!.amount)
      off = {held: before!}
    } else if (wasFunded) change(before!.amount)
    before = version
    wasEverFunded ||= ['funded', 'ended_funded'].includes(version.statusClass)
  }
  return movements
}

export function endingOf({status}: Version, {reference}: Facts): (typeof ENDINGS)[number] {
  const named = reference.statuses[status]?.[2]
  return ENDINGS.find((one) => one === named) ?? 'ended_other'
}

export function isInBook({change, statusClass}: Version): boolean {
  return change !== 'vanished' && statusClass === 'funded'
}

export function listLives(truth: Facts, asOf: string) {
  return [...truth.deals].flatMap(([id, all]) => {
    const sightings = all.filter(({on}) => on <= asOf)
    const versions = listVersions(sightings, truth.reference)
    const last = versions.at(-1)
    if (!last) return []
    const created = sightings.findLast(({kind}) => kind === 'seen')!.fields!.createdAt
    return [
      {
        id,
        versions,
        spells: listSpells(id, sightings, truth),
        movements: listMovements(id, versions, truth),
        createdOn: dayOf(created),
        isMissing: sightings.at(-1)?.kind === 'missing',
        last,
      },
    ]
  })
}
