import {createRandom, type Random} from '../../src/service/portfolio.ts'

/** How long and with which seed a proof runs. */
export interface ProofRequest {
  /** How many runs; each proof defines what a run is. */
  runs: number
  seed: string
  /** The first run, from 0; with `runs` 1 it replays a single one. */
  first?: number
  /** Called with the proof's progress. */
  onRun?: (run: number) => void
}

/** The result of a proof. */
export interface Proved {
  /** Counts by name. */
  figures: Record<string, number>
}

/** Shows that a promise holds under many random or possible disturbances; throws at the first that breaks it. */
export type Proof = (request: ProofRequest) => Promise<Proved>

/** One repetition of a proof; each run draws its own random numbers, so it can be replayed alone. */
type Run = (run: number, random: Random) => Promise<void>

/**
 * Runs `work` the requested number of times, `atOnce` in parallel.
 *
 * @throws Error that names the run and how to replay it
 */
export async function runAll(
  {name, atOnce = 1}: {name: string; atOnce?: number},
  request: ProofRequest,
  work: Run,
): Promise<void> {
  const {runs, seed, first = 0, onRun} = request
  const queue = Array.from({length: runs}, (_, index) => first + index).values()
  let hasFailed = false
  const worker = async () => {
    for (const run of queue) {
      if (hasFailed) return
      try {
        await work(run, createRandom(name, seed, run))
      } catch (cause) {
        hasFailed = true
        const words = cause instanceof Error ? cause.message : String(cause)
        const replay = `npm run proof ${name} -- --seed ${seed} --first ${run} --runs 1`
        throw new Error(`${name}, run ${run} of seed ${seed} (replay: ${replay}): ${words}`, {cause})
      }
      onRun?.(run)
    }
  }
  const ended = await Promise.allSettled(Array.from({length: atOnce}, worker))
  for (const outcome of ended) if (outcome.status === 'rejected') throw outcome.reason
}

/** Counts by name. */
export interface Tally {
  add(name: string, count?: number): void
  readonly figures: Record<string, number>
}

/** Creates an empty tally. */
export function createTally(): Tally {
  const figures: Record<string, number> = {}
  return {
    figures,
    add(name, count = 1) {
      figures[name] = (figures[name] ?? 0) + count
    },
  }
}

/** Items in an order drawn from a seed: the first few are a sample of all. */
export function shuffle<T>(items: readonly T[], seed: string): T[] {
  const random = createRandom('order', seed)
  return items
    .map((item) => ({item, place: random.next()}))
    .sort((one, other) => one.place - other.place)
    .map(({item}) => item)
}
