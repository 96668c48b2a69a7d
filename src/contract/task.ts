import {z} from 'zod'
import {dateField, instantField, textField} from './fields.ts'

/** A body of `POST /deals/{id}/tasks`. */
export type NewTask = z.output<typeof newTaskSchema>
export const newTaskSchema = z
  .strictObject({title: textField(200), due_on: dateField.nullish()})
  .meta({id: 'NewTask'})

/** A task of a deal. */
export type Task = z.output<typeof taskSchema>
export const taskSchema = z
  .object({
    id: z.string(),
    deal_id: z.string(),
    title: z.string(),
    due_on: dateField.nullable(),
    status: z.enum(['open', 'completed']),
    created_at: instantField,
    completed_at: instantField.nullable(),
  })
  .meta({id: 'Task'})
