import {writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {createTally, type ProofRequest, type Proved, prove, type Run} from './proof.ts'
import {drawStory} from './world/draw.ts'
import {play} from './world/player.ts'
import {type Event, Finding, type Story} from './world/story.ts'

/** The days of each story, and how long a failed one may be shrunk. */
export interface WorldRequest extends ProofRequest {
  days?: number
  shrinkMs?: number
}

/**
 * Plays stories of a lender, each drawn from a seed: a source that changes, fails and lies, a clock that steps, kills, closings,
 * mappings. After every run, an oracle compares tables and books; it knows the source's answer to each request, and nothing of
 * the product. A failing story is shrunk and printed with its commands. A run is one story of `days` days.
 */
export function proveWorld({days = 30, shrinkMs = 600_000, ...request}: WorldRequest): Promise<Proved> {
  const work = async ({run, random, add}: Run) => {
    const story = drawStory(random, days)
    try {
      await play(story, {note: add})
    } catch (error) {
      if (!(error instanceof Finding)) throw error
      const failed = {story: cutAfter(story, error.place), finding: error}
      throw await describe(
        shrinkMs > 0 ? await shrinkStory(failed, shrinkMs) : failed,
        `${request.seed}-${run}`,
      )
    }
  }
  return prove('world', request, work, {atOnce: 2})
}

/** Plays a shrunk story again. */
export async function replayStory(story: Story): Promise<Proved> {
  const {figures, add} = createTally()
  await play(story, {note: add})
  return {figures}
}

/**
 * Saves a failed story and plays it once more.
 *
 * @returns an error with its events and the commands that a person would have typed
 */
async function describe({story, finding}: Failed, name: string): Promise<Error> {
  const file = join(tmpdir(), `loantape-world-${name}.json`)
  writeFileSync(file, JSON.stringify(story, null, 1))
  const told: string[] = []
  await play(story, {tell: (line) => void told.push(line)}).catch(() => undefined)
  return new Error(
    `${finding.message}\n\n${told.join('\n')}\n\nThis story again: npm run proof world -- --story ${file}\n`,
    {cause: finding},
  )
}

/** A story that ends in a finding. */
interface Failed {
  story: Story
  finding: Finding
}

/**
 * Plays a story.
 *
 * @returns its finding, a crash included; undefined if all is right
 */
async function findIn(story: Story): Promise<Finding | undefined> {
  try {
    await play(story)
    return undefined
  } catch (error) {
    return error instanceof Finding ? error : new Finding(`crash: ${String(error)}`)
  }
}

/** Returns where something was wrong: the words before the first colon. */
const kindOf = ({message}: Finding) => message.split(':')[0]

/**
 * Returns the shortest story found in the given time that still ends in a finding of the same kind. First removes events, many at
 * once at the beginning, then disturbances of syncs, one by one.
 */
async function shrinkStory(failed: Failed, budgetMs: number): Promise<Failed> {
  const endsAt = performance.now() + budgetMs
  let best = {...failed, story: cutAfter(failed.story, failed.finding.place)}

  async function tryStory(events: Event[]): Promise<boolean> {
    if (performance.now() > endsAt) return false
    const story = {...best.story, events}
    const finding = await findIn(story)
    if (!finding || kindOf(finding) !== kindOf(best.finding)) return false
    best = {finding, story: cutAfter(story, finding.place)}
    return true
  }

  for (let size = best.story.events.length >> 1; size >= 1; size = size === 1 ? 0 : (size + 1) >> 1) {
    for (let from = best.story.events.length - size; from > -size; from -= size) {
      const {events} = best.story
      await tryStory(events.toSpliced(Math.max(from, 0), size + Math.min(from, 0)))
    }
  }
  for (let index = best.story.events.length - 1; index >= 0; index -= 1) {
    for (const simpler of simplify(best.story.events[index]))
      await tryStory(best.story.events.with(index, simpler))
  }
  return best
}

/** Drops the events after the finding, which had no part in it. */
function cutAfter(story: Story, place: number | undefined): Story {
  return place === undefined ? story : {...story, events: story.events.slice(0, place + 1)}
}

/** Returns variants of a sync with fewer disturbances. */
function simplify(event: Event | undefined): Event[] {
  if (event?.do !== 'sync') return []
  const {faults = [], ahead, ...steady} = event
  const {kill, ...whole} = event
  const fewer = faults.map((_, index) => ({...event, faults: faults.toSpliced(index, 1)}))
  return [
    ...(faults.length > 1 && ahead ? [{...event, faults: []}] : []),
    ...fewer,
    ...(kill ? [whole] : []),
    ...(ahead ? [{...steady, ...(event.faults && {faults})}] : []),
  ]
}
