import {createRandom, type Random} from '../../src/service/portfolio.ts'

/** How long and with which numbers a proof runs. */
export interface ProofRequest {
  /** How many runs; what one is, each proof says. */
  runs: number
  seed: string
  /** The first run, from 0; with `runs` 1 it replays a single one. */
  first?: number
  /** Is told how far the proof has got. */
  onRun?: (run: number) => void
}

/** What a proof came to. */
export interface Proved {
  /** What was counted, by name. */
  figures: Record<string, number>
}

/** Shows that a promise holds under many random or many possible disturbances; throws at the first one that breaks it. */
export type Proof = (request: ProofRequest) => Promise<Proved>

/** Something to do again and again; each run draws from random numbers of its own, so that it can be replayed alone. */
type Run = (run: number, random: Random) => Promise<void>

/**
 * Runs `work` so often, `atOnce` side by side.
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
