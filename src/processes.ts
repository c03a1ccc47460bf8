import * as all from './all/flags.ts';
import * as csiGateway from './csi-gateway/flags.ts';
import * as dashboard from './dashboard/flags.ts';
import type { Process } from './dispatch.ts';
import * as ingest from './ingest/flags.ts';
import * as jobs from './jobs/flags.ts';
import * as operator from './operator/flags.ts';

/** Every process that is shipped, by its name. */
export const processes: Readonly<Record<string, Process>> = {
  ingest: { ...ingest, load: () => import('./ingest/main.ts') },
  jobs: { ...jobs, load: () => import('./jobs/main.ts') },
  'csi-gateway': { ...csiGateway, load: () => import('./csi-gateway/main.ts') },
  dashboard: { ...dashboard, load: () => import('./dashboard/main.ts') },
  all: { ...all, load: () => import('./all/main.ts') },
  explain: { ...operator.explain, load: () => import('./operator/explain.ts') },
  status: { ...operator.status, load: () => import('./operator/status.ts') },
  retry: { ...operator.retry, load: () => import('./operator/retry.ts') },
  audit: { ...operator.audit, load: () => import('./operator/audit.ts') },
  forget: { ...operator.forget, load: () => import('./operator/forget.ts') },
  drain: { ...operator.drain, load: () => import('./operator/drain.ts') },
  uninstall: { ...operator.uninstall, load: () => import('./operator/uninstall.ts') },
};
