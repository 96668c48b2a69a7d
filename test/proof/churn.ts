import assert from 'node:assert/strict'
import {z} from 'zod'
import {syncDeals} from '../../src/pipeline.ts'
import type {Random} from '../../src/service/portfolio.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {createFolder, createWorld, type TestFolder} from '../support/data.ts'
import {walkOnce} from '../support/lab.ts'
import {type ProofRequest, type Proved, prove, type Run} from './proof.ts'
import {configOf, createQuickWorld} from './quick-world.ts'
import {readPortfolio, requireSound} from './soundness.ts'
import {type Source, startSource} from './world/source.ts'
import type {Deal} from './world/story.ts'

const DEALS = 60
/** Walks of one folder, alternately with and without changes; the last one continues to a release. */
const WALKS = 6
const DAY_MS = 86_400_000

interface Witness {
  states: Set<string>
  wasThroughout: boolean
}

const stateOf = ({loan_amount, status, property_address}: Deal) =>
  [loan_amount, status, property_address].join(' | ')

/** Changes a source at random, and records every state that a request could have seen. */
function createChurner(source: Source, random: Random) {
  const witnesses = new Map<string, Witness>()
  let born = 0
  const drawAmount = () => (random.integer(1, 999_999_99) / 100).toFixed(2)

  function insert(): void {
    born += 1
    // Random, so that new deals appear anywhere in a list ordered by id.
    const id = `deal_${random.integer(100, 999)}${born}`
    const deal: Deal = {
      property_address: `${born} Main St, Austin, TX 78701`,
      loan_amount: drawAmount(),
      property_value: '500000.00',
      loan_program: 'bridge_30yr',
      status: 'draft',
      created_at: '2026-01-05T15:00:00Z',
    }
    source.change({do: 'put', id, deal})
    witnesses.set(id, {states: new Set([stateOf(deal)]), wasThroughout: false})
  }

  function changeOne(id: string): void {
    const status = random.pick(['draft', 'underwriting', 'approved', 'funded'])
    source.change({do: 'set', id, fields: random.chance(0.5) ? {loan_amount: drawAmount()} : {status}})
    witnesses.get(id)?.states.add(stateOf(source.deals.get(id)!))
  }

  for (let left = DEALS; left > 0; left -= 1) insert()
  return {
    witnesses,
    begin() {
      witnesses.clear()
      for (const [id, deal] of source.deals)
        witnesses.set(id, {states: new Set([stateOf(deal)]), wasThroughout: true})
    },
    churn() {
      for (let left = random.integer(0, 4); left > 0; left -= 1) {
        const id = [...source.deals.keys()][random.integer(0, source.deals.size - 1)]
        const chance = random.next()
        if (chance < 0.35 || id === undefined) insert()
        else if (chance < 0.7) changeOne(id)
        else {
          source.change({do: 'remove', id})
          Object.assign(witnesses.get(id) ?? {}, {wasThroughout: false})
        }
      }
    },
  }
}

const headRow = z.object({
  deal_id: z.string(),
  kind: z.enum(['seen', 'missing', 'vanished']),
  state: z.string(),
})
type Heads = Map<string, z.infer<typeof headRow>>

async function readHeads({folder}: TestFolder): Promise<Heads> {
  await using db = await openWarehouse(folder, createWorld())
  await requireSound(db)
  const heads = await db.all(
    headRow,
    `select deal_id, kind, concat_ws(' | ', loan_amount, status, property_address) as state
     from history.raw.deal_head`,
  )
  return new Map(heads.map((head) => [head.deal_id, head]))
}

/**
 * Fails if a walk concluded something that no request could have seen.
 * @param mayHide which deals the list may hide: `none`, `new` or `any`
 * @returns how many it hid
 */
function judgeWalk(heads: Heads, before: Heads, witnesses: Map<string, Witness>, mayHide: string): number {
  let hidden = 0
  for (const [id, {states, wasThroughout}] of witnesses) {
    const head = heads.get(id)
    if (head?.kind === 'seen') {
      const isNews = before.get(id)?.state !== head.state || before.get(id)?.kind !== 'seen'
      if (wasThroughout || isNews) assert(states.has(head.state), `${id} was never ${head.state}`)
    }
    if (!wasThroughout || head?.kind === 'seen') continue
    assert.notEqual(head?.kind, 'vanished', `${id} existed and vanished`)
    const isHidden = mayHide === 'any' || (mayHide === 'new' && !head)
    assert(isHidden, `${id} was there throughout and is ${head?.kind ?? 'unknown'}`)
    hidden += 1
  }
  for (const [id, {kind}] of heads)
    if (!witnesses.has(id)) assert.notEqual(kind, 'seen', `${id} was gone before the walk but is seen`)
  return hidden
}

/**
 * Walks lists that change between two pages. Every deal that existed throughout is there once, in a state it had. A list paged by
 * offset may hide a deal: it is then missing, never vanished, and returns in an undisturbed walk. A run walks one folder several
 * times; runs alternate between keyset and offset, with and without own pages.
 */
export function proveChurn({walks = WALKS, ...request}: ProofRequest & {walks?: number}): Promise<Proved> {
  const work = async ({run, random, add}: Run) => {
    const [isKeyset, hasDetail] = [run % 2 === 0, run % 4 < 2]
    await using source = await startSource(isKeyset ? undefined : random)
    using data = createFolder()
    const churner = createChurner(source, random)
    const config = configOf(source.url, data.folder, {
      LOANTAPE_PAGE_SIZE: String(random.integer(4, 12)),
      LOANTAPE_DETAIL: hasDetail ? 'on' : 'off',
    })
    let before: Heads = new Map()
    for (let walk = 0; walk < walks; walk += 1) {
      const isQuiet = walk % 2 === 1
      churner.begin()
      // Each reading of the clock is later than the one before.
      let now = Date.parse('2026-02-02T23:30:00-05:00') + walk * DAY_MS
      const clock = {now: () => (now += 10)}
      source.begin([], {...clock, afterPage: () => undefined})
      source.onAnswer = isQuiet ? () => undefined : churner.churn
      const sync = walk < walks - 1 ? walkOnce : syncDeals
      await sync(config, {accept: ['shrink', 'change', 'growth']}, createQuickWorld({now: clock}))
      const heads = await readHeads(data)
      const mayHide = isKeyset || isQuiet ? 'none' : hasDetail ? 'new' : 'any'
      add('hidden by a shift', judgeWalk(heads, before, churner.witnesses, mayHide))
      before = heads
      add('walks')
    }
    await readPortfolio(data.folder)
    add('releases')
  }
  return prove('churn', request, work, {atOnce: 2})
}
