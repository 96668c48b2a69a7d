import {z} from 'zod'
import {type DocumentGeneration, documentGenerationSchema} from '../contract/document.ts'
import {readTablePage} from './cursor.ts'
import {requireDeal} from './deals.ts'
import {attachDocument} from './documents.ts'
import {type Handlers, PREFIX, type ServiceWorld} from './handlers.ts'
import {requireFound} from './problem-reply.ts'
import {createId, rowCount, rowInstant} from './service-database.ts'
import {renderTemplate} from './templates.ts'

const row = documentGenerationSchema.extend({
  created_at: rowInstant,
  finished_at: rowInstant.nullable(),
})

const SELECT_ONE = 'select * from document_generation where id = ? and deal_id = ?'
const SELECT_QUEUED = `select * from document_generation where status = 'queued' order by created_at, id limit 1`
const COUNT_LINKED = `select
  (select count(*) from borrower where deal_id = ?1) as borrowers,
  (select count(*) from task where deal_id = ?1 and status = 'open') as open_tasks`

/** Creates the operations on document generations; `onRequested` is told once one is queued for good. */
export function createGenerationHandlers(world: ServiceWorld, onRequested: () => void) {
  const {store, database, clock} = world
  const requireGeneration = (dealId: string, id: string): DocumentGeneration =>
    requireFound(database.get(row, SELECT_ONE, id, dealId), 'document_generation_not_found')
  return {
    requestDocumentGeneration: ({id: dealId, body}) => {
      requireDeal(store, dealId)
      const id = createId('gen')
      database.insert('document_generation', {
        id,
        deal_id: dealId,
        template: body.template,
        status: 'queued',
        created_at: clock.now(),
      })
      database.afterCommit(onRequested)
      const location = `${PREFIX}/deals/${dealId}/document-generations/${id}`
      return {body: {data: requireGeneration(dealId, id)}, headers: {Location: location}}
    },
    listDocumentGenerations: ({id, query}) => {
      requireDeal(store, id)
      const table = {name: 'document_generation', row, parent: {deal_id: id}}
      return {body: readTablePage(query, table, database)}
    },
    getDocumentGeneration: ({id, childId}) => {
      requireDeal(store, id)
      return {body: {data: requireGeneration(id, childId)}}
    },
  } satisfies Partial<Handlers>
}

/** Makes the document of one generation; its file, its row and its event are kept together or not at all. */
function generateOne(
  generation: DocumentGeneration,
  world: ServiceWorld,
  onError: (error: unknown) => void,
): void {
  const {id, deal_id: dealId, template} = generation
  const {database, store, files, clock} = world
  const finish = (status: string, document_id: string | null): void =>
    database.update('document_generation', id, {status, document_id, finished_at: clock.now()})
  const linked = database.get(z.object({borrowers: rowCount, open_tasks: rowCount}), COUNT_LINKED, dealId)
  const counts = {borrowers: linked?.borrowers ?? 0, openTasks: linked?.open_tasks ?? 0}
  const {content, ...document} = renderTemplate(template, requireDeal(store, dealId), counts)
  const file = files.write(content)
  try {
    database.transaction(() => finish('completed', attachDocument({...document, dealId, file}, world).id))
  } catch (error) {
    finish('failed', null)
    onError(error)
  } finally {
    files.discard(file)
  }
}

/** Makes documents in the background; what was queued when a service was killed is made by the next. */
export function createGenerator(world: ServiceWorld, onError: (error: unknown) => void) {
  let scheduled: NodeJS.Immediate | undefined
  const wake = (): void => {
    scheduled ??= setImmediate(() => {
      scheduled = undefined
      const next = world.database.get(row, SELECT_QUEUED)
      if (!next) return
      try {
        generateOne(next, world, onError)
        wake()
      } catch (error) {
        onError(error)
      }
    })
  }
  return {
    wake,
    stop: () => {
      if (scheduled) clearImmediate(scheduled)
    },
  }
}
