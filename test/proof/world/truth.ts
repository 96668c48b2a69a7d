import {type Answer, READABLE, UNREADABLE, type WireRecord} from './source.ts'
import {businessDate, Finding, type Reference, SHIPPED_STATUSES} from './story.ts'

/** A deal as one walk knows it: as seen, or as absent. */
export interface Sighting {
  kind: 'seen' | 'missing' | 'vanished'
  at: number
  on: string
  walk: number
  /** Only if seen; fields that were not shown are left out. */
  fields?: Shown
}

export interface Walk {
  /** Unique among all walks, even those a restore undid. */
  id: number
  startedAt: number
  settledAt: number
  on: string
  pages: number
  records: number
  distinct: number
  quarantined: number
  amount: bigint
  /** Deals by the walk's outcome; `present` counts those present after it. */
  counts: Record<'created' | 'updated' | 'restored' | 'unchanged' | 'missing' | 'vanished', number>
  present: number
  presentAmount: bigint
}

export interface Unread {
  id: string | null
  at: number
  on: string
  /** Number of the walk that showed it; for a refused walk, the number of the next. */
  walk: number
  isOfRefused: boolean
  /** Unique among all walks, refused ones included. */
  batch: number
  record: WireRecord
  isOwn: boolean
  isReplayed: boolean
  isLost?: boolean
}

export type Plan = ReturnType<Truth['plan']>

interface OpenWalk {
  startedAt: number
  on: string
  pages: {cursor: string | null; next: string | null; at: number; records: WireRecord[]}[]
  own: {run: number; at: number; id: string; status: number; record?: WireRecord}[]
}

export interface Known {
  deals: Map<string, Sighting[]>
  walks: Walk[]
  quarantine: Unread[]
}

export interface Facts extends Readonly<Known> {
  reference: Reference
}

export type Truth = ReturnType<typeof createTruth>

/** The statuses that a guard counts as funded, and as ended; all others are in the pipeline. */
const SETTLED = ['funded', 'servicing']
const ENDED = ['paid_off', 'withdrawn']

function carryShown(before: Shown | undefined, {fields}: Sighting): Shown | undefined {
  return fields ? carry(fields, before) : before
}

/** Returns what is known of a deal after these fields were shown; a field that was not shown keeps its value. */
export function carry(fields: Shown, before: Pick<Shown, 'value' | 'program'> | undefined) {
  return {
    ...fields,
    value: fields.value !== undefined ? fields.value : (before?.value ?? null),
    program: fields.program !== undefined ? fields.program : (before?.program ?? null),
  }
}

function isSameShown(one: Shown, other: Shown): boolean {
  const names = ['address', 'amount', 'value', 'program', 'status', 'createdAt'] as const
  return names.every((name) => one[name] === other[name])
}

export function createTruth() {
  let deals: Known['deals'] = new Map()
  let walks: Walk[] = []
  let quarantine: Known['quarantine'] = []
  let open: OpenWalk | undefined
  let run = 0
  let lastId = 0
  let lastBatch = 0
  let lastAt = 0

  function read({pages, own}: OpenWalk) {
    const shown = new Map<string, {at: number; fields?: Shown}>()
    const unread: Pick<Unread, 'id' | 'at' | 'record' | 'isOwn'>[] = []
    const take = (record: WireRecord, at: number, isOwn = false) => {
      const fields = readRecord(record)
      const id = typeof record.id === 'string' && record.id !== '' ? record.id : null
      if (!fields || id === null) unread.push({id, at, record, isOwn})
      else if ((shown.get(id)?.at ?? at) <= at) shown.set(id, {at, fields})
    }
    for (const page of pages) for (const record of page.records) take(record, page.at)
    const records = pages.flatMap((page) => page.records)
    const list = {
      records: records.length,
      distinct: shown.size,
      quarantined: unread.length,
      amount: shown.values().reduce((total, {fields}) => total + fields!.amount, 0n),
    }
    const listed = new Set(records.map(({id}) => id))
    for (const {run: asked, at, id, status, record} of own) {
      const isProven = own.some((other) => other.run === asked && other.status === 200)
      if (record) take(record, at, true)
      // Gone, unless the list shows it.
      else if (isProven && !listed.has(id) && (status === 404 || status === 410)) shown.set(id, {at})
    }
    return {shown, unread, list, listed}
  }

  const lastOf = (id: string) => deals.get(id)?.at(-1)
  const lastSeen = (id: string) => deals.get(id)?.findLast(({kind}) => kind === 'seen')?.fields

  function listAbsent(walk: OpenWalk, {shown, unread}: ReturnType<typeof read>) {
    const absent: {id: string; kind: 'missing' | 'vanished'; at: number}[] = []
    const unreadIds = new Set(unread.map(({id}) => id))
    for (const id of deals.keys()) {
      const last = lastOf(id)
      if (!last || last.kind === 'vanished') continue
      const seen = shown.get(id)
      if (seen && !seen.fields) absent.push({id, kind: 'vanished', at: seen.at})
      if (seen || unreadIds.has(null) || unreadIds.has(id)) continue
      const isSecond = last.kind === 'missing' && last.walk === walks.length
      absent.push({id, kind: isSecond ? 'vanished' : 'missing', at: walk.startedAt})
    }
    return absent
  }

  return {
    get deals() {
      return deals
    },
    get walks() {
      return walks
    },
    get quarantine() {
      return quarantine
    },
    reference: {statuses: SHIPPED_STATUSES, fundedOn: {}} as Reference,
    save: (): Known => ({deals: new Map(deals), walks: [...walks], quarantine: [...quarantine]}),
    /** Returns to earlier knowledge; the tapes and the open walk are lost. */
    restore(known: Known) {
      deals = new Map(known.deals)
      walks = [...known.walks]
      quarantine = known.quarantine.map((entry) => ({...entry, isLost: true}))
      open = undefined
    },
    mark() {
      const now = {deals: new Map(deals), walks: [...walks], quarantine: [...quarantine], open}
      return () => {
        ;({deals, walks, quarantine, open} = now)
      }
    },
    /** @param now business clock, ms since the epoch */
    beginRun(now: number) {
      run += 1
      lastAt = now
    },
    hear(heard: Answer) {
      // The product holds a clock that was corrected by less than a second until it has caught up.
      const isHeld = heard.at < lastAt && lastAt - heard.at < 1000
      const answer = isHeld ? {...heard, at: lastAt} : heard
      lastAt = answer.at
      if ('own' in answer) return void open?.own.push({run, at: answer.at, ...answer.own})
      const {cursor} = answer.page
      if (cursor !== null && !open?.pages.some(({next}) => next === cursor))
        throw new Finding(`walk: asked for the cursor '${cursor}', which no page of this walk gave`)
      if (cursor === null || !open) {
        const on = businessDate(answer.at)
        const before = walks.at(-1)?.on ?? ''
        open = {startedAt: answer.at, on: [on, before].sort()[1]!, pages: [], own: []}
      }
      const index = open.pages.findIndex(({next}) => next === cursor)
      open.pages.length = cursor === null ? 0 : index + 1
      // Own pages follow the last list page on the tape, so they are lost when a page is read again.
      open.own = []
      open.pages.push({at: answer.at, ...answer.page})
    },
    /** Forgets this run's own pages: it ended before they were stored. */
    forgetOwnPages() {
      if (open) open.own = open.own.filter((own) => own.run !== run)
    },
    /** Whether the clock stepped back by a second or more between the requests of the open walk, or before `endedAt`. */
    isStepped(endedAt: number) {
      const instants = [...(open?.pages ?? []), ...(open?.own ?? [])].map(({at}) => at)
      return [...instants, endedAt].some((at, index) => at < (instants[index - 1] ?? 0) - 999)
    },
    plan() {
      const result = read(open!)
      const absent = listAbsent(open!, result)
      const known = [...deals.keys()].filter((id) => lastOf(id)?.kind !== 'vanished')
      const plan = {
        known: known.length,
        newlyAbsent: absent.filter(({id}) => lastOf(id)?.kind === 'seen').length,
        absent: absent.length,
        listed: result.list.distinct,
        /** Known deals that changed their amount, left or entered the funded statuses, or changed any other field. */
        amounts: 0,
        left: 0,
        entered: 0,
        fields: {} as Record<string, number>,
        pipeline: 0,
        present: 0,
        amountBefore: 0n,
        amountAfter: 0n,
        quarantined: result.list.quarantined,
        records: result.list.records,
      }
      const gone = new Set(absent.filter(({kind}) => kind === 'vanished').map(({id}) => id))
      for (const id of new Set([...known, ...result.shown.keys()])) {
        const before = known.includes(id) ? lastSeen(id) : undefined
        const after = result.shown.get(id)?.fields
        plan.amountBefore += before?.amount ?? 0n
        const isPresent = !gone.has(id) && (after ?? before) !== undefined
        if (isPresent) plan.amountAfter += (after ?? before)!.amount
        if (isPresent) plan.present += 1
        if (before && !SETTLED.includes(before.status) && !ENDED.includes(before.status)) plan.pipeline += 1
        if (!before || !after) continue
        if (before.amount !== after.amount) plan.amounts += 1
        const [was, is] = [before, after].map(({status}) => SETTLED.includes(status))
        if (was && !is) plan.left += 1
        if (!was && is) plan.entered += 1
        for (const field of ['address', 'value', 'program', 'status'] as const) {
          const [then, now] = [before[field], after[field]]
          // A value learned for the first time is no change; steps into and out of the funded statuses are counted separately.
          if (now === undefined || now === then || (then ?? null) === null) continue
          if (field !== 'status' || was === is) plan.fields[field] = (plan.fields[field] ?? 0) + 1
        }
      }
      return plan
    },
    lastDay: () =>
      [...walks, ...[...deals.values()].flat()]
        .map(({on}) => on)
        .sort()
        .at(-1)!,
    /** Ends the open walk. A refused walk keeps its unreadable records; an abandoned one leaves nothing. */
    settle(end: 'applied' | 'refused' | 'abandoned', now = lastAt) {
      const walk = open
      open = undefined
      if (!walk || end === 'abandoned') return
      const result = read(walk)
      const noteUnread = (isOfRefused: boolean) => {
        lastBatch += 1
        for (const unread of result.unread)
          quarantine.push({
            ...unread,
            on: walk.on,
            walk: walks.length + 1,
            isOfRefused,
            batch: lastBatch,
            isReplayed: false,
          })
      }
      if (end === 'refused') return noteUnread(true)
      const absent = listAbsent(walk, result)
      const number = walks.length + 1
      noteUnread(false)
      const counts = {created: 0, updated: 0, restored: 0, unchanged: 0, missing: 0, vanished: 0}
      for (const [id, seen] of result.shown) {
        if (!result.listed.has(id)) continue
        const last = lastOf(id)
        const before = deals.get(id)?.reduce(carryShown, undefined)
        if (!last || !before) counts.created += 1
        else if (last.kind === 'vanished') counts.restored += 1
        else if (isSameShown(carry(seen.fields!, before), before)) counts.unchanged += 1
        else counts.updated += 1
      }
      for (const {id, kind} of absent) {
        if (kind === 'vanished') counts.vanished += 1
        else if (lastOf(id)?.kind === 'seen') counts.missing += 1
      }
      lastId += 1
      const own = {
        id: lastId,
        startedAt: walk.startedAt,
        settledAt: Math.max(lastAt, now),
        on: walk.on,
        pages: walk.pages.length,
        ...result.list,
        counts,
      }
      const add = (id: string, sighting: Omit<Sighting, 'on' | 'walk'>) =>
        deals.set(id, [...(deals.get(id) ?? []), {...sighting, on: walk.on, walk: number}])
      for (const [id, seen] of result.shown)
        if (seen.fields) add(id, {kind: 'seen', at: seen.at, fields: seen.fields})
      for (const {id, kind, at} of absent) add(id, {kind, at})
      const present = [...deals.keys()].filter((id) => lastOf(id)?.kind !== 'vanished')
      const presentAmount = present.reduce((total, id) => total + lastSeen(id)!.amount, 0n)
      walks.push({...own, present: present.length, presentAmount})
    },
    hasUnread: () => open !== undefined && read(open).unread.length > 0,
    /**
     * Replays the quarantine with a schema that can read {@link UNREADABLE} amounts; nothing of a refused walk is believed.
     * @returns how many records it read
     */
    replay() {
      let replayed = 0
      const waiting = quarantine.filter(
        ({isReplayed, isLost, isOfRefused}) => !isReplayed && !isLost && !isOfRefused,
      )
      const byWalk = Map.groupBy(waiting, ({batch}) => batch)
      for (const entries of byWalk.values()) {
        const latest = new Map<string, {entry: Unread; fields: Shown}>()
        for (const entry of entries.toSorted((a, b) => a.at - b.at || Number(a.isOwn) - Number(b.isOwn))) {
          const isMended = entry.record.loan_amount === UNREADABLE
          const fields = readRecord({...entry.record, ...(isMended && {loan_amount: READABLE})})
          if (!fields || entry.id === null) continue
          replayed += 1
          quarantine[quarantine.indexOf(entry)] = {...entry, isReplayed: true}
          latest.set(entry.id, {entry, fields})
        }
        for (const [id, {entry, fields}] of latest) {
          const {at, walk} = entry
          const known = deals.get(id) ?? []
          const last = known.at(-1)
          const isLate = last !== undefined && at < last.at
          const on = isLate ? entry.on : [entry.on, last?.on ?? ''].sort()[1]!
          const place = known.findLastIndex((sighting) => sighting.at <= at) + 1
          deals.set(id, known.toSpliced(place, 0, {kind: 'seen', at, on, walk, fields}))
        }
      }
      return replayed
    },
  }
}

export interface Shown {
  address: string | null
  amount: bigint
  value?: bigint | null
  program?: string | null
  status: string
  statusText: string
  createdAt: string
}

/** Reads an amount as the contract says, in cents: a number up to 7e13 or decimal text, with two places; null if it is none. */
function readCents(value: unknown): bigint | null {
  const text = typeof value === 'number' ? (value > 7e13 ? '' : formatNumber(value)) : value
  if (typeof text !== 'string') return null
  const match = /^(\d{1,16})(?:\.(\d{1,2})0*)?$/.exec(text.trim())
  return match ? BigInt(match[1]! + (match[2] ?? '').padEnd(2, '0')) : null
}

function formatNumber(value: number): string {
  const text = value.toFixed(2)
  return Number(text) === value ? text : ''
}

function readRecord(record: WireRecord): Shown | null {
  const {id, property_address, loan_amount, status, created_at} = record
  const amount = readCents(loan_amount)
  const value = record.property_value
  const cents = value === null || value === undefined ? value : readCents(value)
  const texts = [id, property_address, record.loan_program, status]
  const isText = (text: unknown) => text === null || text === undefined || typeof text === 'string'
  const isLong = (text: unknown) => typeof text === 'string' && (text.length > 8192 || text.includes('\0'))
  if (typeof id !== 'string' || id === '' || amount === null || (cents === null && value !== null))
    return null
  if (typeof status !== 'string' || status === '' || typeof created_at !== 'string') return null
  if (!texts.every(isText) || texts.some(isLong) || !id.isWellFormed()) return null
  const program = record.loan_program as string | null | undefined
  return {
    // Half a surrogate pair is not a character.
    address: (property_address as string | null)?.toWellFormed() ?? null,
    amount,
    ...(cents !== undefined && {value: cents}),
    ...(program !== undefined && {program: program?.trim() ? program : null}),
    status: status.trim().toLowerCase(),
    statusText: status,
    createdAt: created_at,
  }
}
