import {FEW_TABLES} from '../support/data.ts'

/** The tables the workbench pages read, in the form `--select` takes. */
export const PAGE_TABLES: string = `${FEW_TABLES} +mart.portfolio_breakdown +mart.movement +mart.position_daily +mart.portfolio_monthly +mart.pipeline_aging +mart.data_quality +mart.document_coverage +mart.limit_status +mart.funded_rollforward +mart.concentration +mart.top_exposure +accounting.journal_line +accounting.loan_register +accounting.tie_out`
