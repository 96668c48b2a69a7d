import assert from 'node:assert/strict'
import {z} from 'zod'
import {type Config, parseConfig} from '../../src/core/config.ts'
import {formatCents} from '../../src/core/money.ts'
import {syncDeals} from '../../src/pipeline.ts'
import type {StoredDeal} from '../../src/service/deals.ts'
import type {Random} from '../../src/service/portfolio.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {createFolder, type TestFolder} from '../support/data.ts'
import {aDeal} from '../support/lab.ts'
import {MOVING_KEY, type MovingSource, startKeysetSource, startOffsetSource} from './moving-source.ts'
import {createTally, type ProofRequest, type Proved, runAll} from './proof.ts'
import {createQuickWorld, untilStopped} from './quick-world.ts'
import {readPortfolio, requireSound} from './soundness.ts'

const DEALS = 60
/** Walks of one folder, with and without changes in turn; the last one continues to a release. */
const WALKS = 6
const DAY_MS = 86_400_000

/** A deal during one walk. */
interface Witness {
  /** Every state it was in. */
  states: Set<string>
  /** It existed from the first request to the last. */
  wasThroughout: boolean
}

function stateOf({loanAmountCents, status, propertyAddress}: StoredDeal): string {
  return [formatCents(loanAmountCents), status, propertyAddress].join(' | ')
}

/** Changes a source at random and records what any request could have seen. */
interface Churner {
  /** Clears what was recorded. */
  begin(): void
  churn(): void
  witnesses: Map<string, Witness>
}

function createChurner(source: MovingSource, random: Random): Churner {
  const witnesses = new Map<string, Witness>()
  let born = DEALS
  const note = (deal: StoredDeal) => witnesses.get(deal.id)?.states.add(stateOf(deal))

  function insert(): void {
    born += 1
    // Anywhere in the list of a source that orders by creation time.
    const deal = aDeal(born, {createdAt: Date.parse('2026-01-05T15:00:00Z') + random.integer(0, 90_000)})
    witnesses.set(deal.id, {states: new Set([stateOf(deal)]), wasThroughout: false})
    source.insert(deal)
  }

  function changeOne(deal: StoredDeal): void {
    const change = random.chance(0.5)
      ? {loanAmountCents: BigInt(random.integer(1, 999_999_99))}
      : {status: random.pick(['draft', 'underwriting', 'approved', 'funded'])}
    source.update(deal.id, change)
    note({...deal, ...change})
  }

  return {
    witnesses,
    begin() {
      witnesses.clear()
      for (const deal of source.all())
        witnesses.set(deal.id, {states: new Set([stateOf(deal)]), wasThroughout: true})
    },
    churn() {
      for (let left = random.integer(0, 4); left > 0; left -= 1) {
        const deals = source.all()
        const deal = deals[random.integer(0, deals.length - 1)]
        const chance = random.next()
        if (chance < 0.35 || !deal) insert()
        else if (chance < 0.7) changeOne(deal)
        else {
          source.remove(deal.id)
          const witness = witnesses.get(deal.id)
          if (witness) witness.wasThroughout = false
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

type Head = z.infer<typeof headRow>

async function readHeads(data: TestFolder): Promise<Map<string, Head>> {
  await using db = await openWarehouse(data.folder)
  await requireSound(db)
  const heads = await db.all(
    headRow,
    `select deal_id, kind, concat_ws(' | ', loan_amount, status, property_address) as state
     from warehouse.raw.deal_head`,
  )
  assert.equal(new Set(heads.map(({deal_id}) => deal_id)).size, heads.length, 'a deal is there twice')
  return new Map(heads.map((head) => [head.deal_id, head]))
}

/** How a list pages, and whether deals have a page of their own. */
interface Mode {
  paging: 'keyset' | 'offset'
  hasDetail: boolean
}

/** Fails if a walk concluded something nobody could have seen. */
function judgeWalk(
  heads: Map<string, Head>,
  before: Map<string, Head>,
  witnesses: Map<string, Witness>,
  {mode, isQuiet}: {mode: Mode; isQuiet: boolean},
): {hidden: number} {
  let hidden = 0
  for (const [id, {states, wasThroughout}] of witnesses) {
    const head = heads.get(id)
    if (head?.kind === 'seen') {
      const isNews = before.get(id)?.state !== head.state || before.get(id)?.kind !== 'seen'
      if (wasThroughout || isNews) assert(states.has(head.state), `${id} was never ${head.state}`)
    }
    if (!wasThroughout) continue
    assert.notEqual(head?.kind, 'vanished', `${id} existed and vanished`)
    if (head?.kind === 'seen') continue
    const mayBeHidden = mode.paging === 'offset' && !isQuiet && !(mode.hasDetail && head)
    assert(mayBeHidden, `${id} was there throughout and is ${head?.kind ?? 'unknown'}`)
    hidden += 1
  }
  for (const [id, {kind}] of heads)
    if (!witnesses.has(id)) assert.notEqual(kind, 'seen', `${id} was gone before the walk but is seen`)
  return {hidden}
}

/**
 * Walks lists that change between two pages. Every deal that existed throughout is there once, in a state it had; a list that
 * pages by offset may hide a deal, which is then missing, never vanished, and is back after an undisturbed walk.
 *
 * A run is one folder walked several times; keyset and offset, with and without own pages, in turn.
 */
export async function proveChurn({
  walks = WALKS,
  ...request
}: ProofRequest & {walks?: number}): Promise<Proved> {
  const tally = createTally()
  await runAll({name: 'churn', atOnce: 2}, request, async (run, random) => {
    const mode: Mode = {paging: run % 2 === 0 ? 'keyset' : 'offset', hasDetail: run % 4 < 2}
    await using source =
      mode.paging === 'keyset' ? await startKeysetSource() : await startOffsetSource(random)
    using data = createFolder()
    for (let number = 1; number <= DEALS; number += 1) source.insert(aDeal(number))
    const churner = createChurner(source, random)
    const config = configOf(source, data, mode, random)
    let before = new Map<string, Head>()
    for (let walk = 0; walk < walks; walk += 1) {
      const isQuiet = walk % 2 === 1
      const isLast = walk === walks - 1
      churner.begin()
      source.onAnswer = isQuiet ? () => undefined : churner.churn
      const world = createQuickWorld({
        now: {from: Date.parse('2026-02-02T23:30:00-05:00') + walk * DAY_MS},
        stopAt: isLast ? undefined : 'changes applied',
      })
      await untilStopped(syncDeals(config, {accept: ['shrink', 'change', 'growth']}, world))
      const heads = await readHeads(data)
      const {hidden} = judgeWalk(heads, before, churner.witnesses, {mode, isQuiet})
      before = heads
      tally.add('walks')
      tally.add('hidden by a shift', hidden)
    }
    await readPortfolio(data.folder)
    tally.add('releases')
  })
  return tally
}

function configOf(source: MovingSource, data: TestFolder, mode: Mode, random: Random): Config {
  const env = {
    LOANTAPE_BASE_URL: source.url,
    LOANTAPE_API_KEY: MOVING_KEY,
    LOANTAPE_DATA_DIR: data.folder.root,
    LOANTAPE_RATE_PER_SECOND: '5000',
    LOANTAPE_PAGE_SIZE: String(random.integer(4, 12)),
    LOANTAPE_DETAIL: mode.hasDetail ? 'on' : 'off',
  }
  return parseConfig(env, {readFile: () => ''})
}
