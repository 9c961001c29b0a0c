// The page's script: what still words, tables and figures cannot do. Texts go into the page as text, never as markup.

import { installDownloads } from './downloads';
import { installFolds } from './folds';
import { installTables } from './tables';
import { installTheme } from './theme';
import { installViews } from './views';

installTheme();
installTables();
installFolds();
void installDownloads();
installViews();
