import assert from 'node:assert/strict'
import {RUN_STEPS} from '../../src/core/types.ts'
import type {DealStore} from '../../src/service/deals.ts'
import {linkPortfolio, type Random, seedPortfolio} from '../../src/service/portfolio.ts'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {aDeal, createLab, DAY_1} from '../support/lab.ts'
import {type ProofRequest, type Proved, prove, type Run} from './proof.ts'
import {runThere, type Trouble} from './separate-run.ts'
import {listLeftovers, readPortfolio, requireSoundFolder} from './soundness.ts'

const KILL_STEPS: readonly string[] = [...RUN_STEPS, 'sync done', 'export csv done', 'export parquet done']
const NIGHT = 'sync then export csv then export parquet'.split(' ')

/** Groups in which a walk stores its 60 pages: 50, then 10. */
const PAGE_GROUPS = 2
const PAGES = 60
const STREAMS = 'deals,borrowers,documents'
type Kill = {step: string; nth: number} | {share: number}

export interface KillRequest extends ProofRequest {
  points?: readonly string[]
  /** Number of kills at random moments of the second day; two by default. What they hit depends on the machine's speed. */
  randomKills?: number
  /** The tables of a release, as `--select` names them; all by default. */
  tables?: string
  /** A multiple of 60; 300 by default. */
  deals?: number
}

function planKills(
  {points = KILL_STEPS, randomKills = 2}: KillRequest,
  run: number,
  random: Random,
): Kill[][] {
  const ofRun = points === KILL_STEPS ? points.filter((_, index) => index % 2 === run % 2) : points
  const named = ofRun.flatMap((step): Kill[] => {
    if (step === 'pages stored') return [{step, nth: random.integer(1, PAGE_GROUPS)}]
    if (step !== 'lists stored') return [{step, nth: 1}]
    // The stream whose lists were stored is then the second one to be applied, after the deals.
    return [
      {step, nth: random.integer(1, 2)},
      {step: 'changes applied', nth: 2},
    ]
  })
  const shares = Array.from({length: randomKills}, () => random.next()).sort((one, other) => one - other)
  return [named, shares.map((share): Kill => ({share}))].filter((kills) => kills.length > 0)
}

/** Creates, changes and deletes deals, so that every phase of the day's run has work. */
function passDay(store: DealStore, day: number, random: Random): void {
  store.transaction(() => {
    for (const id of store.ids()) {
      const chance = random.next()
      const deal = store.get(id)
      if (!deal) continue
      if (chance < 0.01) store.remove(id)
      else if (chance < 0.04) store.update(id, {loan_amount_cents: deal.loan_amount_cents + 12_345n})
      else if (chance < 0.08) store.update(id, {status: 'funded'})
      // List rows do not show the value. They show the address, whose change makes every run ask for the own page on the same
      // day.
      else if (chance < 0.12) {
        const property_address = `${random.integer(1, 999)} Elm St, Austin, TX 78701`
        store.update(id, {property_address, property_value_cents: BigInt(random.integer(1, 9_999_999_99))})
      }
    }
    store.insert(Array.from({length: 5}, (_, index) => aDeal(900_000 + day * 100 + index)))
  })
}

/**
 * Kills syncs at every named point and at random moments, several times per folder and over several days, and completes each day
 * afterwards. The result equals that of an undisturbed folder, nothing under a final name is ever torn, and the warehouse is
 * sound after every kill. A run is one folder: every second named point, or the requested ones, on the first day; random moments
 * on the second.
 */
export async function proveKill(request: KillRequest): Promise<Proved> {
  const {tables = 'all', deals = 300} = request
  const steps = new Set<string>()
  const work = async ({run, random, add}: Run) => {
    await using lab = await createLab({tables})
    const seed = random.text(8)
    seedPortfolio(lab.service.store, {deals, seed, today: '2026-02-02'})
    linkPortfolio(lab.service, {seed, since: 0, until: Date.parse('2026-02-03')})
    const runNight = async ({root}: DataFolder, at: string, kill?: Trouble['kill']) => {
      const env = {
        ...lab.env,
        LOANTAPE_DATA_DIR: root,
        LOANTAPE_STREAMS: STREAMS,
        LOANTAPE_PAGE_SIZE: String(deals / PAGES),
        ...(tables !== 'all' && {SELECT: tables}),
      }
      const ended = await runThere(NIGHT, {env, at}, {kill})
      assert(ended.isKilled || ended.code === 0, `${JSON.stringify(kill)} ended: ${ended.stderr}`)
      return ended
    }
    /**
     * Runs a night to its end, in a process of its own, since its time says when others are killed.
     * @returns the time from its first step to its last in ms, and whether a release became current
     */
    const runWhole = async (folder: DataFolder, at: string) => {
      const {reached} = await runNight(folder, at)
      const runMs = reached.at(-1)!.at - reached[0]!.at
      return {runMs, isReleased: reached.some(({step}) => step === 'current moved')}
    }
    let {runMs} = await runWhole(lab.folder, DAY_1)
    const folder = lab.copyFolder('killed')
    for (const [index, kills] of planKills(request, run, random).entries()) {
      const now = `2026-02-0${index + 3}T23:30:00-05:00`
      passDay(lab.service.store, index, random)
      const today = Date.parse(now.slice(0, 10))
      linkPortfolio(lab.service, {seed, since: today, until: today + 86_400_000})
      for (const kill of kills) {
        const {isKilled} = await runNight(folder, now, 'share' in kill ? {afterMs: kill.share * runMs} : kill)
        add(isKilled ? 'kills' : 'ended before')
        if (isKilled && 'step' in kill) steps.add(kill.step)
        await requireSoundFolder(folder)
      }
      runMs = (await runWhole(lab.folder, now)).runMs
      const {isReleased} = await runWhole(folder, now)
      await requireSoundFolder(folder)
      assert.deepEqual(await readPortfolio(folder), await readPortfolio(lab.folder), `on ${now}`)
      assert.deepEqual(listLeftovers(folder, {afterRelease: isReleased}), [])
      add('days')
    }
  }
  // One for each core of the machine that the suite is measured on.
  const {figures} = await prove('kill', request, work, {atOnce: 2})
  return {figures: {...figures, points: steps.size}}
}
