import {type Task, taskSchema} from '../contract/task.ts'
import {createId, rowInstant, type ServiceDatabase} from './database.ts'
import {requireDeal} from './deals.ts'
import type {Handlers, ServiceWorld} from './handlers.ts'
import {refuse} from './problem-reply.ts'
import {readTablePage} from './table-page.ts'

const row = taskSchema.extend({
  created_at: rowInstant,
  completed_at: rowInstant.nullable(),
})

function requireTask(database: ServiceDatabase, id: string): Task {
  const task = database.get(row, 'select * from task where id = ?', id)
  if (!task) throw refuse('task_not_found')
  return task
}

/** Creates the operations on tasks. */
export function createTaskHandlers(
  world: ServiceWorld,
): Pick<Handlers, 'createTask' | 'listTasks' | 'completeTask'> {
  const {store, database, clock, emit} = world
  return {
    createTask: ({id: dealId, body}) => {
      requireDeal(store, dealId)
      const id = createId('task')
      database.run(
        `insert into task (id, deal_id, title, due_on, status, created_at) values (?, ?, ?, ?, 'open', ?)`,
        id,
        dealId,
        body.title,
        body.due_on ?? null,
        clock.now(),
      )
      return {body: {data: requireTask(database, id)}}
    },
    listTasks: ({id, query}) => {
      requireDeal(store, id)
      const parent = {column: 'deal_id', id}
      return {body: readTablePage(query, {name: 'task', row, parent}, database)}
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
  }
}
