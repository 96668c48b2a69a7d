import {nameOf} from '../damage.ts'
import type {Event, Fault, Story, Sync} from './story.ts'

/** A story as shell lines: what a person types, with the source's and machine's events as comments. */
export function tellStory(story: Story): string[] {
  const paid = story.booksEnded ? 'with' : 'without'
  return [
    `# settings: LOANTAPE_PAGE_SIZE=${story.pageSize}; accounting.json ${paid} an account for endings`,
    ...story.events.flatMap(tellEvent),
  ]
}

function tellEvent(event: Event): string[] {
  switch (event.do) {
    case 'put':
      return [`# source: ${event.id} exists: ${JSON.stringify(event.deal)}`]
    case 'set':
      return [`# source: ${event.id} changes: ${JSON.stringify(event.fields)}`]
    case 'remove':
      return [`# source: ${event.id} is removed`]
    case 'sync':
      return tellSync(event)
    case 'sweep':
      return event.profiles.map(
        (profile) =>
          `${at(event)} loantape export ${profile} --period …   # for each month from the first walk on`,
      )
    case 'replay':
      return ['# the schema is fixed', `${at(event)} loantape quarantine replay`]
    case 'look back':
      return [`${at(event)} loantape build --as-of …   # ${event.days} days before the last walk`]
    case 'close':
      return [`${at(event)} loantape period close …   # the first open month`]
    case 'reopen':
      return [`${at(event)} loantape period reopen … --why 'a proof'   # the month closed last`]
    case 'seed':
      return [`# seeds of LOANTAPE_SQL_DIR: ${JSON.stringify({...event, do: undefined})}`]
    case 'save':
      if (event.part === 'folder') return ['rm -rf copy; cp -R data copy']
      return event.part === 'history'
        ? ['cp data/warehouse.duckdb* backup/']
        : ['cp -R data/exports backup/; sqlite3 data/state.sqlite ".backup backup/state.sqlite"']
    case 'recover':
      return LOSSES[event.from].map((words) => words.replace('rebuild', `${at(event)} loantape rebuild`))
    case 'lose':
      return [
        `# lost: ${nameOf(event.loss)}; if refused: ${event.remedy}`,
        `${at(event)} loantape ${event.first}`,
        `${at(event)} loantape build; loantape export ${event.profile} --period …`,
      ]
    case 'map':
      return [
        `# accounting.json: receivable accounts ${JSON.stringify(event.receivable)}`,
        ...(event.isMoved ? [`${at(event)} loantape period remap`] : []),
      ]
  }
}

/** The ways to lose a warehouse. */
const LOSSES = {
  tapes: ['echo damaged > data/warehouse.duckdb', 'rebuild --apply'],
  backup: [
    'mv data aside; mkdir data; cp backup/warehouse.duckdb* data/',
    'cp -R backup/exports backup/state.sqlite data/   # those of aside/ if batches were issued since',
    "tape go-on --why 'a proof'",
  ],
}

const at = (event: {at: string}) => `LOANTAPE_NOW=${event.at}`

function tellSync(event: Sync): string[] {
  const {accept = [], faults = [], ahead, kill} = event
  const accepted = accept.map((word) => ` --accept ${word}`).join('')
  return [
    ...faults.map((fault) => `# source, during the next run: ${tellFault(fault)}`),
    ...(ahead
      ? [
          `# clock: ahead by ${ahead.hours} h while page ${ahead.page} is asked for${ahead.forGood ? ' and after' : ''}`,
        ]
      : []),
    ...(kill ? [`# killed at the ${kill.nth}. '${kill.step}'`] : []),
    ...(event.diskKib === undefined ? [] : [`trap '' XFSZ; ulimit -f ${event.diskKib * 2}`]),
    ...(event.secondAt === undefined
      ? []
      : [`# another sync is started while page ${event.secondAt} is answered`]),
    `${at(event)} loantape sync${accepted}`,
  ]
}

function tellFault(fault: Fault): string {
  switch (fault.is) {
    case 'moving':
      return `after page ${fault.page}: ${fault.changes.flatMap(tellEvent).join('; ').replaceAll('# source: ', '')}`
    case 'stale':
      return `page ${fault.page} is as it was before the last changes`
    case 'stuck':
      return `from page ${fault.page} on the cursor leads to the same page`
    case 'endless':
      return `from page ${fault.page} on fresh cursors lead to the same page`
    case 'bytes':
      return `the bytes of page ${fault.page} are not UTF-8`
    case 'spelling':
      return `statuses are spelled differently: ${fault.how}`
    case 'mass':
      return `every deal is '${fault.status}'`
    case 'replaced':
      return 'every deal has another address, value and program'
    case 'no pages':
      return 'no deal has its own page (404)'
    case 'unreadable':
    case 'no page':
    case 'page fails':
      return `${fault.is}: ${fault.ids.join(', ')}`
    default:
      return `page ${fault.page}: ${fault.is}, ${fault.times} times`
  }
}
