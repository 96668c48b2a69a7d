import {Argument, Command, InvalidArgumentError, Option} from 'commander'
import {proveChurn} from '../test/proof/churn.ts'
import {proveCombined} from '../test/proof/combined.ts'
import {PAGES_PER_RUN, proveFuzz} from '../test/proof/fuzz.ts'
import {proveJournal} from '../test/proof/journal.ts'
import {proveKill} from '../test/proof/kill.ts'
import {proveKillWrites} from '../test/proof/kill-writes.ts'
import {proveNights} from '../test/proof/nights.ts'
import {proveNthAnswer} from '../test/proof/nth-answer.ts'
import {proveNthFile} from '../test/proof/nth-file.ts'
import type {Proof} from '../test/proof/proof.ts'
import {PORTFOLIO_TABLES} from '../test/proof/quick-world.ts'
import {proveStores} from '../test/proof/stores.ts'
import {proveWorld} from '../test/proof/world.ts'
import {keepTemporaryFilesInMemory} from '../test/support/temporary.ts'

keepTemporaryFilesInMemory()

/** As many runs as there are cases. */
const ALL = Number.MAX_SAFE_INTEGER

/**
 * Every proof, with its runs in the middle and in the whole length. Each proof defines what a run is; some have no more runs than
 * cases. `npm test` does the first `tested` runs.
 */
const PROOFS: Record<string, {prove: Proof; tested?: number; middle: number; whole: number}> = {
  kill: {
    prove: (request) => proveKill({...request, ...few, ...(isMiddle && {randomKills: 0})}),
    middle: 2,
    whole: 77,
  },
  'kill-writes': {
    prove: (request) =>
      proveKillWrites({
        ...request,
        ...(isMiddle && {deeds: ['batch issued', 'month closed', 'gone on', 'tapes pruned']}),
      }),
    middle: 8,
    whole: ALL,
  },
  'nth-answer': {prove: proveNthAnswer, tested: 1, middle: 5, whole: ALL},
  'nth-file': {prove: (request) => proveNthFile({...request, ...few}), middle: 4, whole: ALL},
  churn: {prove: proveChurn, tested: 2, middle: 2, whole: 167},
  fuzz: {prove: proveFuzz, tested: 1, middle: 2, whole: 100_000 / PAGES_PER_RUN},
  journal: {prove: proveJournal, tested: 1, middle: 1, whole: 60},
  nights: {prove: proveNights, middle: 1, whole: 100},
  stores: {prove: proveStores, middle: 20, whole: ALL},
  // In the gate, the tests with outside programs run this proof.
  combined: {prove: proveCombined, middle: 0, whole: 120},
  // A run is a story.
  world: {
    prove: (request) => proveWorld({...request, days: days ?? (isMiddle ? 8 : 30)}),
    middle: 1,
    whole: 200,
  },
}

function parseCount(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError('It is no number.')
  return Number(text)
}

interface Options {
  length: 'whole' | 'middle'
  runs?: number
  seed?: string
  first?: number
  days?: number
}

const command = new Command('npm run proof --')
  .addArgument(new Argument('[proof...]', 'all of them by default').choices(Object.keys(PROOFS)))
  .addOption(new Option('--length <length>').choices(['whole', 'middle']).default('whole'))
  .option('--runs <count>', 'instead of those of the length', parseCount)
  .option('--seed <text>', 'another one each time, but in the middle length')
  .option('--first <run>', 'the first run, from 0', parseCount)
  .option('--days <count>', 'of each story of the world', parseCount)
  .parse()
const {length, runs, first, days, ...options} = command.opts<Options>()

/**
 * The gate runs the middle length: always the same cases, and nothing in them depends on the machine's speed. It skips the first
 * runs of this seed, which `npm test` does.
 */
const isMiddle = length === 'middle'
const seed = options.seed ?? (isMiddle ? '2026' : String(Date.now()))

/** Fewer tables per release in the middle length. */
const few = isMiddle ? {tables: PORTFOLIO_TABLES} : {}

const REPORT_EVERY_MS = 10_000

/**
 * Runs a proof and reports its progress.
 *
 * @returns its outcome, in words
 */
async function runProof(name: string, {prove, ...proof}: (typeof PROOFS)[string]): Promise<string> {
  const startedAt = performance.now()
  const asked = runs ?? proof[length]
  const from = first ?? (isMiddle ? (proof.tested ?? 0) : 0)
  const words = `${asked === ALL ? 'all' : asked} runs from ${from}, seed ${seed}`
  process.stdout.write(`${name}: ${words}\n`)
  let [done, reportedAt] = [0, startedAt]
  const tell = (result: string) =>
    `${name}: ${done} of ${words}, ${Math.round((performance.now() - startedAt) / 1000)} s${result}\n`
  const onRun = () => {
    done += 1
    if (performance.now() - reportedAt < REPORT_EVERY_MS) return
    reportedAt = performance.now()
    process.stdout.write(tell(''))
  }
  try {
    const {figures} = await prove({runs: asked, seed, first: from, onRun})
    return tell(
      `: ${Object.entries(figures)
        .map(([figure, count]) => `${figure} ${count}`)
        .join(', ')}`,
    )
  } catch (error) {
    process.exitCode = 1
    process.stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`)
    return tell(': FAILED, see above')
  }
}

const outcomes: string[] = []
for (const [name, proof] of Object.entries(PROOFS))
  if (command.args.length > 0 ? command.args.includes(name) : proof[length] > 0)
    outcomes.push(await runProof(name, proof))
process.stdout.write(`\n${outcomes.join('')}`)
