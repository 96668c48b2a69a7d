import {writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {createTally, type ProofRequest, type Proved, runAll} from './proof.ts'
import {drawStory} from './world/draw.ts'
import {Finding} from './world/finding.ts'
import {play} from './world/player.ts'
import {cutAfter, type Failed, shrinkStory} from './world/shrink.ts'
import type {Story} from './world/story.ts'
import {tellStory} from './world/tell.ts'

/** How long each story is, and how long a failed one may be shrunk. */
export interface WorldRequest extends ProofRequest {
  days?: number
  shrinkMs?: number
}

/**
 * Plays stories of a lender, each drawn from a seed: a source that changes, fails and lies, a clock that steps, kills, closings,
 * mappings. After every run an oracle that knows the source's answer to each request, and nothing of the product, compares
 * tables and books. A failing story is shrunk and printed as commands.
 *
 * A run is one story of `days` days.
 */
export async function proveWorld(request: WorldRequest): Promise<Proved> {
  const {days = 30, shrinkMs = 600_000, seed} = request
  const tally = createTally()
  await runAll({name: 'world', atOnce: 2}, request, async (run, random) => {
    const story = drawStory(random, days)
    try {
      await play(story, {note: (name) => tally.add(name), command: () => undefined})
    } catch (error) {
      if (!(error instanceof Finding)) throw error
      const failed = {story: cutAfter(story, error.place), finding: error}
      throw describe(shrinkMs > 0 ? await shrinkStory(failed, shrinkMs) : failed, `${seed}-${run}`)
    }
  })
  return tally
}

/** Plays a story that was shrunk before. */
export async function replayStory(story: Story): Promise<Proved> {
  const tally = createTally()
  await play(story, {note: (name) => tally.add(name), command: () => undefined})
  return tally
}

function describe({story, finding}: Failed, name: string): Error {
  const file = join(tmpdir(), `loantape-world-${name}.json`)
  writeFileSync(file, JSON.stringify(story, null, 1))
  const told = tellStory(story).join('\n')
  return new Error(
    `${finding.message}\n\n${told}\n\nThis story again: npm run proof world -- --story ${file}\n`,
    {cause: finding},
  )
}
