import {createRandom, type Random} from '../../src/service/portfolio.ts'

export interface ProofRequest {
  runs: number
  seed: string
  /** The first run, from 0; with `runs` 1 it replays a single one. */
  first?: number
  onRun?: (run: number) => void
}

export interface Proved {
  figures: Record<string, number>
}

/** Shows that a promise holds under many random or possible disturbances; throws at the first that breaks it. */
export type Proof = (request: ProofRequest) => Promise<Proved>

/** One repetition of a proof; each run draws its own random numbers, so it can be replayed alone. */
export interface Run {
  run: number
  random: Random
  add: (name: string, count?: number) => void
}

/** Runs `work` the requested number of times, `atOnce` in parallel. @throws Error that names the run and how to replay it */
export async function prove(
  name: string,
  {runs, seed, first = 0, onRun}: ProofRequest,
  work: (run: Run) => Promise<void>,
  {atOnce = 1}: {atOnce?: number} = {},
): Promise<Proved> {
  const figures: Record<string, number> = {}
  const add: Run['add'] = (name, count = 1) => {
    figures[name] = (figures[name] ?? 0) + count
  }
  const queue = Array.from({length: runs}, (_, index) => first + index).values()
  let hasFailed = false
  const worker = async () => {
    for (const run of queue) {
      if (hasFailed) return
      try {
        await work({run, random: createRandom(name, seed, run), add})
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
  return {figures}
}

export function shuffle<T>(random: Random, items: readonly T[]): T[] {
  return items
    .map((one) => ({one, place: random.next()}))
    .sort((one, other) => one.place - other.place)
    .map(({one}) => one)
}

/** Proves cases in an order drawn from the seed: a run is a case, and there are no more runs than cases. */
export async function proveCases<Case>(
  name: string,
  request: ProofRequest,
  cases: readonly Case[],
  work: (one: Case, run: Run) => Promise<void>,
): Promise<Proved> {
  const order = shuffle(createRandom('order', request.seed), cases)
  const runs = Math.min(request.runs, order.length - (request.first ?? 0))
  const judge = async (run: Run) => {
    const one = order[run.run] as Case
    try {
      await work(one, run)
    } catch (cause) {
      throw new Error(`${JSON.stringify(one)}: ${cause instanceof Error ? cause.message : cause}`, {cause})
    }
  }
  const {figures} = await prove(name, {...request, runs}, judge)
  return {figures: {...figures, 'of cases': order.length}}
}
