import type {SourceConfig} from '../config.ts'
import {codeOf} from '../errors.ts'
import {findLearntRate, storeLearntRate} from '../ledger/learnt-rate.ts'
import type {CurrentRun} from '../ledger/runs.ts'
import {addSourceAnswers} from '../ledger/source-answers.ts'
import type {Acceptance} from '../load/guard.ts'
import {readDealStream} from '../load/mapped-fields.ts'
import {createClient} from '../source/client.ts'
import type {World} from '../types.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {openWarehouse} from '../warehouse/warehouse.ts'
import {adoptFields} from './mapped-fields.ts'
import {restageWalks} from './restage.ts'
import {dropWalks, type WalkTools} from './settle.ts'
import {openTapes} from './tapes.ts'
import {requireOwnSource} from './walk.ts'
import {createWalkClock} from './walk-clock.ts'

/**
 * Opens the warehouse, takes up what runs that died had read, and has `work` done at the source, under a clock that never goes
 * back. What the source told of its rate is kept for the next run.
 *
 * @throws what opening them throws: ConfigError `SOURCE_PINNED`, `CLOCK_BACKWARDS`, those of the tapes' key; LockedError
 */
export async function atSource<T>(
  config: SourceConfig,
  {folder, run, accepted}: {folder: DataFolder; run: CurrentRun; accepted: ReadonlySet<Acceptance>},
  outside: World,
  work: (tools: WalkTools, world: World) => Promise<T>,
): Promise<T> {
  const {runId, ledger} = run
  await using db = await openWarehouse(folder, outside, config)
  outside.onStep('warehouse opened')
  await adoptFields(db, folder, outside)
  await using tapes = openTapes(config, {folder, ledger}, outside)
  const walks = await restageWalks({db, tapes}, outside)
  await requireOwnSource({db, tapes, walks}, config.baseUrl, accepted)
  const world = {...outside, clock: await createWalkClock(db, walks, outside.clock)}
  const learntRate = findLearntRate(ledger, config.baseUrl, world)
  await using client = createClient({...config, learntRate}, world)
  try {
    const stream = await readDealStream(db)
    return await work({runId, db, ledger, folder, tapes, walks, stream, client, config, accepted}, world)
  } catch (error) {
    // The clock went back: the instants of what was read may be wrong.
    if (codeOf(error) === 'CLOCK_STEPPED') await dropWalks({db, tapes, walks}, 'clock stepped')
    throw error
  } finally {
    storeLearntRate(ledger, config.baseUrl, client.ratePerSecond, world)
    addSourceAnswers(ledger, client.answers)
  }
}
