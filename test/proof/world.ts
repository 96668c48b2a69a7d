import {type ProofRequest, type Proved, prove, type Run} from './proof.ts'
import {drawStory} from './world/draw.ts'
import {play} from './world/player.ts'

/**
 * Plays stories of a lender, each drawn from a seed: a source that changes, fails and lies, a clock that steps, kills, closings,
 * mappings. After every run, an oracle compares tables and books; it knows the source's answer to each request, and nothing of
 * the product. A failing story is printed with its commands; with fewer days it begins the same. A run is one story of `days`
 * days.
 */
export function proveWorld({days = 30, ...request}: ProofRequest & {days?: number}): Promise<Proved> {
  const work = async ({random, add}: Run) => {
    const told: string[] = []
    try {
      await play(drawStory(random, days), {note: add, tell: (line) => void told.push(line)})
    } catch (cause) {
      throw new Error(`${cause instanceof Error ? cause.message : cause}\n\n${told.join('\n')}`, {cause})
    }
  }
  return prove('world', request, work, {atOnce: 2})
}
