import {type Task, taskSchema} from '../contract/task.ts'
import {readTablePage} from './cursor.ts'
import {requireDeal} from './deals.ts'
import type {Handlers, ServiceWorld} from './handlers.ts'
import {requireFound} from './problem-reply.ts'
import {createId, rowInstant, type ServiceDatabase} from './service-database.ts'

const row = taskSchema.extend({
  created_at: rowInstant,
  completed_at: rowInstant.nullable(),
})

function requireTask(database: ServiceDatabase, id: string): Task {
  return requireFound(database.get(row, 'select * from task where id = ?', id), 'task_not_found')
}

/** Creates the operations on tasks. */
export function createTaskHandlers(world: ServiceWorld) {
  const {store, database, clock, emit} = world
  return {
    createTask: ({id: dealId, body}) => {
      requireDeal(store, dealId)
      const id = createId('task')
      const {title, due_on = null} = body
      database.insert('task', {id, deal_id: dealId, title, due_on, status: 'open', created_at: clock.now()})
      return {body: {data: requireTask(database, id)}}
    },
    listTasks: ({id, query}) => {
      requireDeal(store, id)
      return {body: readTablePage(query, {name: 'task', row, parent: {deal_id: id}}, database)}
    },
    completeTask: ({id}) => {
      const {deal_id} = requireTask(database, id)
      const completed = database.run(
        "update task set status = 'completed', completed_at = ? where id = ? and status = 'open'",
        clock.now(),
        id,
      )
      if (completed > 0) emit({type: 'task.completed', data: {id, deal_id, status: 'completed'}})
      return {body: {data: requireTask(database, id)}}
    },
  } satisfies Partial<Handlers>
}
