readGroups();
startGallery();
drawSummary();
drawCurves();
drawPrompts();
fillFilters();
choose();
