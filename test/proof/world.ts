import {writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {createTally, type ProofRequest, type Proved, prove, type Run} from './proof.ts'
import {drawStory} from './world/draw.ts'
import {Finding} from './world/finding.ts'
import {play} from './world/player.ts'
import {cutAfter, type Failed, shrinkStory} from './world/shrink.ts'
import type {Story} from './world/story.ts'

/** How long each story is, and how long a failed one may be shrunk. */
export interface WorldRequest extends ProofRequest {
  days?: number
  shrinkMs?: number
}

/**
 * Plays stories of a lender, each drawn from a seed: a source that changes, fails and lies, a clock that steps, kills, closings,
 * mappings. After every run an oracle that knows the source's answer to each request, and nothing of the product, compares
 * tables and books. A failing story is shrunk and printed with its commands.
 *
 * A run is one story of `days` days.
 */
export function proveWorld({days = 30, shrinkMs = 600_000, ...request}: WorldRequest): Promise<Proved> {
  const work = async ({run, random, add}: Run) => {
    const story = drawStory(random, days)
    try {
      await play(story, {note: add, tell: () => undefined})
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

/** Plays a story that was shrunk before. */
export async function replayStory(story: Story): Promise<Proved> {
  const {figures, add} = createTally()
  await play(story, {note: add, tell: () => undefined})
  return {figures}
}

/** Plays a failed story once more, and tells what happened and what a person would have typed. */
async function describe({story, finding}: Failed, name: string): Promise<Error> {
  const file = join(tmpdir(), `loantape-world-${name}.json`)
  writeFileSync(file, JSON.stringify(story, null, 1))
  const told: string[] = []
  await play(story, {note: () => undefined, tell: (line) => void told.push(line)}).catch(() => undefined)
  return new Error(
    `${finding.message}\n\n${told.join('\n')}\n\nThis story again: npm run proof world -- --story ${file}\n`,
    {cause: finding},
  )
}
