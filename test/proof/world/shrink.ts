import {Finding} from './finding.ts'
import {play} from './player.ts'
import type {Event, Story} from './story.ts'

/** A story that ends in a finding. */
export interface Failed {
  story: Story
  finding: Finding
}

/** The finding a story ends in; undefined if all is right. */
async function findIn(story: Story): Promise<Finding | undefined> {
  try {
    await play(story, {note: () => undefined, tell: () => undefined})
    return undefined
  } catch (error) {
    return error instanceof Finding ? error : new Finding(`crash: ${String(error)}`)
  }
}

/** Where something was wrong: the words before the first colon. */
const kindOf = ({message}: Finding) => message.split(':')[0]

/**
 * The shortest story found within the time budget that still ends in a finding of the same kind: events are removed, many at
 * once first, then the disturbances of a run, one after the other.
 */
export async function shrinkStory(failed: Failed, budgetMs: number): Promise<Failed> {
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

/** The events after the finding had no part in it. */
export function cutAfter(story: Story, place: number | undefined): Story {
  return place === undefined ? story : {...story, events: story.events.slice(0, place + 1)}
}

/** The same event with one disturbance less. */
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
