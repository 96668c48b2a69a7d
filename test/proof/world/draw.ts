import {addDays} from '../../../src/core/clock.ts'
import {RUN_STEPS, type RunStep} from '../../../src/core/types.ts'
import type {Random} from '../../../src/service/portfolio.ts'
import {PROFILE_NAMES} from '../../support/importer.ts'
import {shuffle} from '../proof.ts'
import {DAMAGES, STORE_NAMES} from './lose.ts'
import {
  type Change,
  type Deal,
  type Event,
  type Fault,
  instantOf,
  type Lose,
  type Reference,
  type Seeding,
  type Story,
  type Sync,
} from './story.ts'

/** First days of stories, most of them shortly before a new month, a new year or a change of the clocks. */
const STARTS = ['2026-01-26', '2026-02-24', '2026-03-05', '2026-10-28', '2025-12-27', '2026-06-10'] as const
/** Local times at which a run starts; the last two belong to the previous business date. */
const TIMES = ['23:30', '23:30', '18:00', '06:00', '01:30', '05:59'] as const
const PROGRAMS = ['bridge_30yr', 'bridge_30yr', 'dscr', 'fix_and_flip', null, 'a "b", c;d'] as const
const PLACES = ['Austin, TX 78701', 'Stamford, CT 06902', 'Albany, NY 12207', 'somewhere'] as const
/** The next statuses of a deal: most advance, some go back, some end. */
const NEXT: Record<string, [string, ...string[]]> = {
  draft: ['underwriting', 'underwriting', 'approved', 'withdrawn'],
  underwriting: ['approved', 'approved', 'draft', 'funded'],
  approved: ['funded', 'funded', 'funded', 'underwriting', 'withdrawn'],
  funded: ['paid_off', 'servicing', 'approved', 'paid_off'],
  servicing: ['paid_off', 'funded'],
  paid_off: ['funded', 'servicing'],
  withdrawn: ['draft'],
  in_review: ['approved'],
}
/** Steps at which a run may die; stories have no child streams. */
const KILLS = RUN_STEPS.filter(
  (step) => !['warehouse opened', 'lists stored', 'models compiled'].includes(step),
)

export function drawStory(random: Random, days: number): Story {
  const story: Story = {pageSize: random.integer(4, 9), booksEnded: random.chance(0.7), events: []}
  const known = new Map<string, Deal>()
  const removed = new Map<string, Deal>()
  let born = 0
  const often = random.pick([0.5, 1, 3] as const)
  let date: string = random.pick(STARTS)

  const tell = (change: Change) => {
    const deal = change.do === 'set' ? {...known.get(change.id)!, ...change.fields} : undefined
    if (change.do === 'put') known.set(change.id, change.deal)
    else if (deal) known.set(change.id, deal)
    else known.delete(change.id)
    return change
  }
  const create = (): Change => {
    born += 1
    // Ids in random order, so that new deals appear anywhere in the list.
    const id = `deal_${random.integer(100, 999)}${born}`
    return tell({do: 'put', id, deal: drawDeal(random, date)})
  }
  const changeOne = (): Change => {
    const ids = [...known.keys()]
    // A few deals change most, so that they enter the same status again and again.
    const busy = random.chance(0.6) ? ids.slice(0, 4) : ids
    const id = random.pick(busy as [string, ...string[]])
    const chance = random.next()
    if (chance < 0.08) {
      removed.set(id, known.get(id)!)
      return tell({do: 'remove', id})
    }
    const returning = random.chance(0.3) ? [...removed.keys()][0] : undefined
    if (chance < 0.16 && returning !== undefined) {
      const deal = removed.get(returning)!
      removed.delete(returning)
      return tell({do: 'put', id: returning, deal})
    }
    return tell({do: 'set', id, fields: drawFields(random, known.get(id)!)})
  }
  const drawChanges = () => {
    const changes: Change[] = []
    // Few enough that no guard refuses them.
    for (let left = random.integer(0, 3); left > 0 && known.size > 0; left -= 1) changes.push(changeOne())
    for (let left = random.integer(0, 2); left > 0; left -= 1) changes.push(create())
    return changes
  }

  for (let left = random.integer(6, 30); left > 0; left -= 1) story.events.push(create())
  for (let day = 0; day < days; day += 1) {
    story.events.push(...drawChanges())
    const time = random.pick(TIMES)
    const at = new Date(instantOf(time < '06:00' ? addDays(date, 1) : date, time)).toISOString()
    if (random.chance(0.1)) story.events.push(drawSeeding(random, [...known.keys()], date))
    if (random.chance(0.02)) story.events.push({do: 'sync', at: moveBack(at, random.integer(1, 60))})
    const faults = drawFaults(random, [...known.keys()], drawChanges)
    story.events.push(drawSync(random, at, faults))
    story.events.push(...drawOffice(random, at, often))
    date = addDays(date, random.chance(0.15) ? random.integer(2, 6) : 1)
  }
  const end = new Date(instantOf(addDays(date, 4), '12:00')).toISOString()
  story.events.push(
    {do: 'sync', at: end},
    {do: 'sweep', at: end, profiles: [random.pick(PROFILE_NAMES as [string])]},
  )
  return story
}

const HOUR_MS = 3_600_000

function moveBack(at: string, hours: number): string {
  return new Date(Date.parse(at) - hours * HOUR_MS).toISOString()
}

function drawSync(random: Random, at: string, faults: Fault[]): Sync {
  const run: Sync = {do: 'sync', at, ...(faults.length > 0 && {faults})}
  const chance = random.next()
  // Many runs end before their release, which the next run makes: this saves build time.
  if (chance < 0.4) run.kill = {step: 'history copied', nth: 1}
  else if (chance < 0.5) {
    run.kill = {step: random.pick(KILLS as [RunStep]), nth: random.integer(1, 2)}
    if (random.chance(0.1)) run.kill.isReal = true
  }
  if (!run.kill && random.chance(0.02)) run.diskKib = random.pick([4, 300, 1200, 3000, 6000] as const)
  if (!run.kill && random.chance(0.02)) run.secondAt = random.integer(1, 3)
  const isOfItsOwn = run.kill?.isReal === true || run.diskKib !== undefined
  if (!isOfItsOwn && random.chance(0.08)) {
    run.ahead = {page: random.integer(1, 4), hours: random.pick([0.0002, 0.5, 30, 80] as const)}
    if (random.chance(0.3)) run.ahead.forGood = true
  }
  return run
}

function drawOffice(random: Random, at: string, often: number): Event[] {
  const chance = (probability: number) => random.chance(probability * often)
  const events: Event[] = []
  if (chance(0.1)) events.push({do: 'save', part: 'history'})
  if (chance(0.1)) events.push({do: 'sweep', at, profiles: [random.pick(PROFILE_NAMES as [string])]})
  if (chance(0.1)) events.push({do: 'save', part: 'books'})
  if (chance(0.06)) {
    events.push({do: 'recover', from: random.pick(['tapes', 'tapes', 'backup'] as const), at})
  }
  if (chance(0.06)) {
    const codes = ['1200', '1300', '1400'] as const
    const receivable = {'*': random.pick(codes), bridge_30yr: random.pick(codes), dscr: random.pick(codes)}
    events.push({do: 'map', receivable, isMoved: random.chance(0.5), at})
  }
  if (chance(0.03)) events.push({do: 'replay', at})
  if (chance(0.02)) events.push({do: 'look back', days: random.integer(0, 10), at})
  if (chance(0.1)) events.push({do: random.chance(0.7) ? 'close' : 'reopen', at})
  if (chance(0.05)) events.push(drawLose(random, at))
  if (chance(0.1)) events.push({do: 'save', part: 'folder'})
  return events
}

function drawLose(random: Random, at: string): Lose {
  const stores = shuffle(random, STORE_NAMES).slice(0, random.chance(0.5) ? 1 : 2)
  return {
    do: 'lose',
    at,
    loss: stores.map((store) => [store, random.pick(DAMAGES)] as const),
    first: random.pick(['sync', 'export', 'build', 'period list'] as const),
    remedy: random.pick(['bring back', 'go on'] as const),
    profile: random.pick(PROFILE_NAMES as [string]),
  }
}

function drawSeeding(random: Random, ids: readonly string[], date: string): Event {
  if (random.chance(0.5)) {
    const fundedOn = ids
      .filter(() => random.chance(0.5))
      .map((id) => [id, addDays(date, random.integer(-30, 5))])
    return {do: 'seed', fundedOn: Object.fromEntries(fundedOn)}
  }
  const classes = ['pipeline', 'ended_unfunded'] as const
  const statuses: Seeding['statuses'] = {}
  if (random.chance(0.5)) statuses.in_review = [random.pick(classes), 55]
  const funded: Reference['statuses'][string] = ['funded', 100]
  const ended: typeof funded = ['ended_funded', 100, random.pick(['sold', 'ended_other'])]
  if (random.chance(0.5)) statuses.servicing = random.pick([funded, ended])
  return {do: 'seed', statuses}
}

/** Amounts at the limits of bands and of cent-exact JSON numbers, and zero. */
const AMOUNTS = [0, 0.01, 250_000, 999_999.99, 9_000_000_000.01, 70_000_000_000_000] as const
/** Addresses at the limits of what reading programs accept as text. */
const ADDRESSES = [
  'x'.repeat(8192),
  'x'.repeat(8193),
  'a\0b',
  '=1+1',
  '"O\'Hara", <b>; 5 % & more\r\nline two',
  '\u{1F3E0} \u05D0\u05D1 \uD800 e\u0301',
  '',
  '_x0041_',
] as const

function drawAmount(random: Random): number {
  if (random.chance(0.1)) return random.pick(AMOUNTS)
  return random.integer(1, 200_000_000) / 100
}

function drawDeal(random: Random, date: string): Deal {
  const created = addDays(date, -random.integer(0, 70))
  const amount = drawAmount(random)
  return {
    property_address: drawAddress(random, 'Main St'),
    loan_amount: random.chance(0.01)
      ? '9999999999999999.99'
      : random.chance(0.2)
        ? amount.toFixed(2)
        : amount,
    property_value: random.chance(0.2) ? null : Math.round(amount * random.integer(50, 250)) / 100,
    loan_program: random.pick(PROGRAMS),
    status: random.pick(['draft', 'underwriting', 'approved', 'funded', 'funded', 'in_review'] as const),
    created_at: random.chance(0.2)
      ? created
      : `${created}T${random.pick(['03:30', '15:00', '23:59'] as const)}:00.000Z`,
  }
}

function drawAddress(random: Random, street: string): string | null {
  if (random.chance(0.05)) return null
  if (random.chance(0.03)) return random.pick(ADDRESSES)
  return `${random.integer(1, 999)} ${street}, ${random.pick(PLACES)}`
}

function drawFields(random: Random, deal: Deal): Partial<Deal> {
  const fields: Partial<Deal> = {}
  const chance = random.next()
  if (chance < 0.55) fields.status = random.pick(NEXT[deal.status] ?? ['draft'])
  if (chance > 0.45 && chance < 0.8) fields.loan_amount = drawAmount(random)
  if (chance > 0.75 && chance < 0.9) fields.loan_program = random.pick(PROGRAMS)
  if (chance > 0.85) fields.property_value = random.chance(0.2) ? null : random.integer(1, 90_000_000) / 100
  if (chance > 0.95) fields.property_address = drawAddress(random, 'Oak Ave')
  return fields
}

function drawFaults(random: Random, ids: readonly string[], drawChanges: () => Change[]): Fault[] {
  const faults: Fault[] = []
  const page = random.integer(1, 4)
  const few = () =>
    Array.from({length: random.integer(1, 2)}, () => random.pick(ids as [string, ...string[]]))
  if (random.chance(0.15)) {
    const is = random.pick(['500', '429', 'reset', 'truncated'] as const)
    faults.push({is, page, times: random.integer(1, 4)})
  }
  if (random.chance(0.004)) faults.push({is: 'silent', page, times: random.pick([1, 1, 3] as const)})
  if (random.chance(0.02)) faults.push({is: 'bytes', page})
  if (random.chance(0.1)) faults.push({is: 'moving', page, changes: drawChanges()})
  if (random.chance(0.06)) faults.push({is: 'stale', page})
  if (random.chance(0.04)) faults.push({is: random.pick(['stuck', 'endless'] as const), page})
  if (random.chance(0.04))
    faults.push({is: 'spelling', how: random.pick(['title', 'upper', 'padded'] as const)})
  if (random.chance(0.02))
    faults.push({is: 'mass', status: random.pick(['funded', 'paid_off', 'draft'] as const)})
  if (random.chance(0.02)) faults.push({is: 'replaced'})
  if (random.chance(0.08)) faults.push({is: 'unreadable', ids: few()})
  if (random.chance(0.05)) faults.push({is: 'no pages'})
  if (random.chance(0.05)) faults.push({is: random.pick(['no page', 'page fails'] as const), ids: few()})
  return faults
}
