readGroups();
startGallery();
drawSummary();
drawCurves();
fillFilters();
choose();
